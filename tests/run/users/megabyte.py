"""Every rank prints a megabyte: 16,384 lines of 64 bytes."""


def run(rank, size):
    for number in range(1 << 14):
        print(f"rank {rank} line {number:06d} ".ljust(63, "."))

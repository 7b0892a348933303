"""What ranks write is kept whole, or of very much the beginning and the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distdemo.run.records import Transcript
from distdemo.run.transcript import KEPT_IN_ALL, LEAST, Transcripts


def test_pieces_are_put_together_by_rank() -> None:
    transcripts = Transcripts(3)
    for rank, piece in ((0, b"on"), (2, "ü".encode()[:1]), (0, b"e\n"), (2, "ü".encode()[1:])):
        transcripts.wrote(rank, piece)
    assert transcripts.finished() == (Transcript("one\n"), Transcript(), Transcript("ü"))


def test_what_is_no_text_is_shown_all_the_same() -> None:
    transcripts = Transcripts(1)
    transcripts.wrote(0, b"a\xffb")
    assert transcripts.finished()[0].text == "a\N{REPLACEMENT CHARACTER}b"


def test_of_very_much_the_two_ends_stay() -> None:
    transcripts = Transcripts(1, kept=40)
    for number in range(100):
        transcripts.wrote(0, b"line %02d\n" % number)
    (found,) = transcripts.finished()
    assert found.left_out == 800 - 2 * 16
    assert found.text == ("line 00\nline 01\n[... 768 bytes left out ...]\nline 98\nline 99\n")


@given(
    st.lists(st.text("ab\n", max_size=50).map(str.encode), max_size=40),
    st.integers(min_value=2, max_value=64),
)
def test_nothing_is_lost_without_being_counted(pieces: list[bytes], kept: int) -> None:
    transcripts = Transcripts(1, kept=kept)
    for piece in pieces:
        transcripts.wrote(0, piece)
    (found,) = transcripts.finished()
    whole = b"".join(pieces)
    if found.left_out == 0:
        assert found.text == whole.decode(errors="replace")
        return
    assert len(whole) - kept <= found.left_out < len(whole)
    note = f"[... {found.left_out:,} bytes left out ...]\n"
    assert found.text.count(note) == 1
    first, last = found.text.split(note)
    assert whole.decode().endswith(last)
    assert whole.decode().startswith(first.removesuffix("\n"))
    assert len(first) + len(last) + found.left_out - len(whole) in (0, 1)  # a newline was added


def test_many_ranks_share_what_is_kept() -> None:
    size = KEPT_IN_ALL // LEAST * 2
    transcripts = Transcripts(size)
    transcripts.wrote(size - 1, b"x" * (2 * LEAST))
    assert transcripts.finished()[-1].left_out == LEAST


def test_what_the_backend_prints_is_not_the_programs() -> None:
    chatter = b"[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer "
    chatter += b"ranks is : 1\n"
    transcripts = Transcripts(1)
    transcripts.wrote(0, b"one\n" + chatter + b"two\n" + chatter)
    assert transcripts.finished()[0].text == "one\ntwo\n"

"""What every rank runs (SPMD): the engines behind the commands."""

"""Match the calls of all ranks, and find errors. Pure logic, without processes."""

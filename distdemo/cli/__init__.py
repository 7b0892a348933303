"""The command line: flags → spec → result → renderer → exit code. The only importer of typer."""

"""The command line: the list of commands, their runner, and the options that they share."""

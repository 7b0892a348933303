"""The views of a measurement: table, live table, JSON, CSV, and plots."""

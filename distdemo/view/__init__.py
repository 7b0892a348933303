"""Results as Rich tables and JSON. The only importer of rich; never imports torch."""

"""Compare two bench files and tell changes from noise."""

"""Remote procedure calls between named workers, and a training step over RPC."""

"""Remote procedure calls between named workers, and a model that is trained over them."""

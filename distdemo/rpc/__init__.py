"""Remote procedure calls between workers, and a model that is trained over them."""

"""What `rnc evaluate --with` computes about a finished run."""

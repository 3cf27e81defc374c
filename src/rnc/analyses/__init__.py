"""The analyses of a finished run, which `rnc evaluate --with` runs."""

"""The datasets of the paper: one reader per file."""

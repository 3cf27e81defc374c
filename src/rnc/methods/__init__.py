"""The methods that the paper compares with, one paper per file; `labels` serves several of them."""

"""Training: stages, the loop, batches, heads on frozen encoders."""

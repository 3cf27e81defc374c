"""Trackers: the records of a training, also in TensorBoard, MLflow or Weights & Biases.

`records.py` passes records on and writes them; `registry.py` has a line for each tracker, and a
file beside it says how that tracker is written to. docs/trackers.md is for users.
"""

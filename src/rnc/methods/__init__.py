"""The methods that the paper compares with, one paper per file.

objective.py says what an objective is, registry.py which methods there are, and labels.py turns
labels into groups for several of them. Nothing here knows a model, data or FitConfig.
"""

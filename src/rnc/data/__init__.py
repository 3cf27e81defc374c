"""Read, check, split and prepare labelled images, signals, volumes and tables."""

from rnc.data.cache_entries import default_cache
from rnc.data.errors import DataError, DataWarning
from rnc.data.inputs import Inputs, Skipped, inputs_from_arrays
from rnc.data.raw import read_inputs
from rnc.data.table import Table, read_table, table_from_arrays

__all__ = [
    "DataError",
    "DataWarning",
    "Inputs",
    "Skipped",
    "Table",
    "default_cache",
    "inputs_from_arrays",
    "read_inputs",
    "read_table",
    "table_from_arrays",
]

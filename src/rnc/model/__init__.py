"""A fitted model: an encoder and a head, what it takes to feed and to save them, what they say.

regressor.py    `Regressor`, from samples to predictions; saved and loaded as a folder
config.py       config.json, which describes one
batching.py     what it says, batch by batch
asked.py        what `predict` gives beside a prediction: medians, quantiles, distributions
intervals.py    its intervals, from the calibration rows and training samples that it keeps
neighbours.py   what its predictions rest on: its nearest training samples
"""

from rnc.model.config import CONVERTED_FROM as CONVERTED_FROM
from rnc.model.config import FORMAT as FORMAT
from rnc.model.config import ModelConfig as ModelConfig
from rnc.model.config import read_config as read_config
from rnc.model.regressor import Regressor as Regressor
from rnc.model.regressor import input_shape_of as input_shape_of
from rnc.model.regressor import load as load
from rnc.model.regressor import without_head as without_head

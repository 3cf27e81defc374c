"""A fitted model: an encoder and a head, their preprocessing, and all that they can predict.

regressor.py    `Regressor`, from samples to predictions; saved and loaded as a folder
config.py       config.json, which describes a model
batching.py     the results of a model, batch by batch
asked.py        the outputs of `predict`: means, medians, quantiles, distributions
intervals.py    intervals, from the calibration rows and training samples that a model keeps
neighbours.py   explanations of predictions, by the nearest training samples
"""

from rnc.model.config import CONVERTED_FROM as CONVERTED_FROM
from rnc.model.config import FORMAT as FORMAT
from rnc.model.config import ModelConfig as ModelConfig
from rnc.model.config import read_config as read_config
from rnc.model.regressor import Regressor as Regressor
from rnc.model.regressor import input_shape_of as input_shape_of
from rnc.model.regressor import load as load
from rnc.model.regressor import without_head as without_head

"""The monitor ``label-free``: inputs, outputs and embeddings judged together, by one statistic with one threshold.

``calibrate`` makes it from a bundle's reference, ``step`` judges a batch, ``rebaseline`` follows an activation.
"""

from edge_agent.drift.unlabelled.calibrate import calibrate
from edge_agent.drift.unlabelled.monitor import LabelFreeState, rebaseline, step, step_many
from edge_agent.drift.unlabelled.params import NAME, LabelFreeParams

__all__ = ["NAME", "LabelFreeParams", "LabelFreeState", "calibrate", "rebaseline", "step", "step_many"]

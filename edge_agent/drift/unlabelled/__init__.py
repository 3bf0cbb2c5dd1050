"""The monitor ``label-free``: inputs, outputs and embeddings judged together, by one statistic with one threshold.

``calibrate`` makes it from a bundle's reference, ``step`` judges a batch, ``rebaseline`` follows an activation;
``told_apart`` says with the labelled monitor's finding what kind of shift it is.
"""

from edge_agent.drift.unlabelled.calibrate import calibrate
from edge_agent.drift.unlabelled.kinds import told_apart
from edge_agent.drift.unlabelled.monitor import LabelFreeState, rebaseline, step
from edge_agent.drift.unlabelled.params import NAME, LabelFreeParams

__all__ = ["NAME", "LabelFreeParams", "LabelFreeState", "calibrate", "rebaseline", "step", "told_apart"]

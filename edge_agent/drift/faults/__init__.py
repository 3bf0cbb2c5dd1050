"""Sensor faults, told from drift: a screen of each sensor's readings before anything judges or learns from them."""

from edge_agent.drift.faults.calibrate import calibrate
from edge_agent.drift.faults.channels import Channels, channels_of
from edge_agent.drift.faults.params import NAME, FaultParams

__all__ = ["NAME", "Channels", "FaultParams", "calibrate", "channels_of"]

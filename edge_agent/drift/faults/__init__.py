"""Sensor faults, told from drift: a screen of each sensor's readings before anything judges or learns from them."""

from edge_agent.drift.faults.calibrate import calibrate
from edge_agent.drift.faults.channels import Channels, channels_of
from edge_agent.drift.faults.params import NAME, FaultParams
from edge_agent.drift.faults.report import FaultReport, Kind, Screened
from edge_agent.drift.faults.screen import rebaseline, step
from edge_agent.drift.faults.state import FaultState

__all__ = [
    "NAME",
    "Channels",
    "FaultParams",
    "FaultReport",
    "FaultState",
    "Kind",
    "Screened",
    "calibrate",
    "channels_of",
    "rebaseline",
    "step",
]

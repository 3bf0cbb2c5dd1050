"""server-bridge: an MQTT fleet as a Flower Grid, cohorts by drift, signed releases."""

__version__ = "0.1.0"

"""From a model to a bundle: checks, training graphs, calibration."""

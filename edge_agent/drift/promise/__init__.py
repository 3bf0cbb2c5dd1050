"""A monitor's threshold for a promised false-alarm rate, from a reference that is autocorrelated and finite.

``calibrate`` is the way in; ``blocks`` measures the autocorrelation and draws streams, ``maxima`` turns the statistics
of streams into thresholds; ``tolerable`` says what rate is promised or watched by where nobody asked for one.
"""

from edge_agent.drift.promise.calibrate import Fit, Promise, StatisticPaths, calibrate

__all__ = ["Fit", "Promise", "StatisticPaths", "calibrate"]

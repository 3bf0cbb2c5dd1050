"""Runs in frouros's environment: its streaming detectors of drift in an error, each with one threshold to sweep."""

import warnings
from functools import cache

import numpy as np
from frouros.detectors import concept_drift as c
from frouros.detectors.data_drift import IncrementalKSTest
from scipy.special import ndtr
from sweep import run

warnings.simplefilter("ignore")


def made(kind, **settings):
    """A detector."""
    return getattr(c, kind)(config=getattr(c, f"{kind}Config")(**settings))


def value_of(detector, value):
    """Feed one value, say whether it alarms, and begin again then."""
    detector.update(value=value)
    if detector.status["drift"]:
        detector.reset()
        return True
    return False


def event_of(detector, value):
    """The same for detectors of 0 or 1."""
    return value_of(detector, int(value > 0.5))


def incremental(reference):
    """The incremental Kolmogorov-Smirnov test of 100 samples against the first 500 of the reference."""
    detector = IncrementalKSTest(window_size=100)
    detector.fit(X=np.asarray(reference[:500], np.float64))
    return detector


def distance(detector, value):
    """Its statistic; none before the window is full."""
    result, _ = detector.update(value=float(value))
    return -np.inf if result is None else float(result.statistic)


def incremental_each(reference):
    """One for each feature."""
    return [incremental(column) for column in np.asarray(reference).T]


def distance_each(detectors, values):
    """The largest."""
    return max(map(distance, detectors, values))


# The exact p-value of a distance is not swept, and is worked out once only.
IncrementalKSTest._calculate_p_value_exact = staticmethod(cache(IncrementalKSTest._calculate_p_value_exact))


class Heard:
    """The normal distribution, keeping the statistic that its tail was last asked for."""

    last = float("nan")

    def sf(self, value):
        """As `scipy.stats.norm.sf`."""
        self.last = float(value)
        return ndtr(-value)


def proportions(reference):
    """STEPD never alarms by itself here; its statistic is swept instead, so that one run tells all thresholds."""
    detector = made("STEPD", alpha_d=1e-300, alpha_w=1e-299)
    detector._distribution = Heard()
    for value in reference:
        detector.update(value=int(value > 0.5))
    return detector


def difference(detector, value):
    """Its statistic; none before there are enough samples, or while all are alike."""
    detector.update(value=int(value > 0.5))
    found = detector._distribution.last
    return found if found == found else -np.inf


def run_length(wanted):
    """ECDD-WT knows three average run lengths."""
    return min((100, 400, 1000), key=lambda length: abs(length - wanted))


DETECTORS = {
    "IncrementalKS": (incremental, distance),
    "IncrementalKS each": (incremental_each, distance_each),
    "CUSUM": (lambda x: made("CUSUM", lambda_=x), value_of, 3000.0, 0.3),
    "GMA": (lambda x: made("GeometricMovingAverage", lambda_=x), value_of, 20.0, 0.001),
    "PageHinkley": (lambda x: made("PageHinkley", lambda_=x), value_of, 3000.0, 0.3),
    "RDDM": (lambda x: made("RDDM", drift_level=x, warning_level=x * 0.78), event_of, 30.0, 0.5),
    "STEPD": (proportions, difference),
    "ECDD-WT": (lambda x: made("ECDDWT", average_run_length=run_length(x)), event_of, 1000.0, 100.0),
    "HDDM_A": (lambda x: made("HDDMA", alpha_d=x, alpha_w=min(0.99, 5 * x)), event_of, 1e-30, 0.5),
    "HDDM_W": (lambda x: made("HDDMW", alpha_d=x, alpha_w=min(0.99, 5 * x)), event_of, 1e-30, 0.5),
}

if __name__ == "__main__":
    run(DETECTORS)

"""Runs in river's environment: its detectors, each with one threshold to sweep and all else at its default."""

from functools import cache
from types import SimpleNamespace

import numpy as np
from river import drift
from river.drift import kswin
from scipy import stats
from scipy.stats import _stats_py
from sweep import run


def value_of(detector, value):
    """Feed one value, say whether it alarms; river's detectors begin again by themselves."""
    detector.update(value)
    return detector.drift_detected


def event_of(detector, value):
    """The same for detectors of 0 or 1."""
    detector.update(value > 0.5)
    return detector.drift_detected


def of_each(detectors, values):
    """A detector a feature: the first alarm counts."""
    alarmed = False
    for detector, value in zip(detectors, values, strict=True):
        detector.update(value)
        alarmed = alarmed or detector.drift_detected
    return alarmed


class Each(list):
    """Detectors, made when the number of features is known."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def update(self, values):
        """Feed one sample's features."""
        if not self:
            self.extend(self.make() for _ in values)
        return of_each(self, values)


def bare_test():
    """`scipy.stats.ks_2samp` without the shell that lays out axes and NaN, which takes nine tenths of its time.

    Raises:
        RuntimeError: it does not find what the whole one finds.
    """
    bare, rng = stats.ks_2samp.__wrapped__, np.random.default_rng(0)
    for pair in np.round(rng.normal(size=(200, 2, 30)), 1).tolist():
        one, other = stats.ks_2samp(*pair, method="auto"), bare(*pair, method="auto")
        if (one.statistic, one.pvalue) != (other.statistic, other.pvalue):
            raise RuntimeError("scipy's two-sample test finds something else without its shell")
    return bare


# KSWIN asks for nothing else of scipy. The exact p-value of a distance is worked out once only.
kswin.stats = SimpleNamespace(ks_2samp=bare_test())
_stats_py._attempt_exact_2kssamp = cache(_stats_py._attempt_exact_2kssamp)


def windows(reference):
    """KSWIN never alarms by itself here; its p-value is swept instead, so that one run tells all thresholds."""
    detector = drift.KSWIN(alpha=1e-300, seed=0)
    for value in reference[-2 * detector.window_size :]:
        detector.update(value)
    return detector


def improbability(detector, value):
    """Minus the p-value, the smaller the more of an alarm."""
    detector.update(value)
    return -detector.p_value


def windows_each(reference):
    """One for each feature."""
    return [windows(column.tolist()) for column in reference.T]


def improbability_each(detectors, values):
    """The largest."""
    return max(map(improbability, detectors, values.tolist()))


binary = drift.binary
DETECTORS = {
    "ADWIN": (lambda x: drift.ADWIN(delta=x), value_of, 1e-30, 0.9),
    "PageHinkley": (lambda x: drift.PageHinkley(threshold=x, mode="up"), value_of, 3000.0, 0.3),
    "ADWIN each": (lambda x: Each(lambda: drift.ADWIN(delta=x)), Each.update, 1e-300, 0.9),
    "PageHinkley each": (lambda x: Each(lambda: drift.PageHinkley(threshold=x)), Each.update, 3000.0, 0.3),
    "KSWIN": (windows, improbability),
    "KSWIN each": (windows_each, improbability_each),
    "DDM": (lambda x: binary.DDM(drift_threshold=x), event_of, 30.0, 0.5),
    "EDDM": (lambda x: binary.EDDM(alpha=1 - x / 2, beta=1 - x), event_of, 0.9, 0.001),
    "FHDDM": (lambda x: binary.FHDDM(confidence_level=x), event_of, 1e-30, 0.9),
    "HDDM_A": (lambda x: binary.HDDMA(drift_confidence=x), event_of, 1e-30, 0.9),
    "HDDM_W": (lambda x: binary.HDDMW(drift_confidence=x), event_of, 1e-30, 0.9),
}

if __name__ == "__main__":
    run(DETECTORS)

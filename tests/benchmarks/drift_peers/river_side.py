"""Runs in river's environment: its detectors, each with one threshold to sweep and all else at its default."""

from river import drift
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


binary = drift.binary
DETECTORS = {
    "ADWIN": (lambda x: drift.ADWIN(delta=x), value_of, 1e-30, 0.9),
    "PageHinkley": (lambda x: drift.PageHinkley(threshold=x, mode="up"), value_of, 3000.0, 0.3),
    "ADWIN each": (lambda x: Each(lambda: drift.ADWIN(delta=x)), Each.update, 1e-300, 0.9),
    "PageHinkley each": (lambda x: Each(lambda: drift.PageHinkley(threshold=x)), Each.update, 3000.0, 0.3),
    "KSWIN": (windows, improbability),
    "DDM": (lambda x: binary.DDM(drift_threshold=x), event_of, 30.0, 0.5),
    "EDDM": (lambda x: binary.EDDM(alpha=1 - x / 2, beta=1 - x), event_of, 0.9, 0.001),
    "FHDDM": (lambda x: binary.FHDDM(confidence_level=x), event_of, 1e-30, 0.9),
    "HDDM_A": (lambda x: binary.HDDMA(drift_confidence=x), event_of, 1e-30, 0.9),
    "HDDM_W": (lambda x: binary.HDDMW(drift_confidence=x), event_of, 1e-30, 0.9),
}

if __name__ == "__main__":
    run(DETECTORS)

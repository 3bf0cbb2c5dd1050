"""Runs in alibi-detect's environment: its online detectors by the statistic that they compare with a threshold.

Their own thresholds are simulated for a run length; here one constant threshold is swept, which is what theirs become
once the windows are full.
"""

import warnings

warnings.simplefilter("ignore")

import logging  # noqa: E402

import numpy as np  # noqa: E402
from alibi_detect.cd import CVMDriftOnline, FETDriftOnline  # noqa: E402
from sweep import run  # noqa: E402

logging.disable(logging.WARNING)
WINDOWS, REFERENCE, WINDOW = [20, 60, 200], 500, 100
# Thresholds that are simulated and not used cost least at a short run length.
UNUSED = {"ert": 500.0, "verbose": False}


def cramer(reference):
    """Cramer-von Mises over three windows, the first 500 of the reference."""
    return CVMDriftOnline(columns(reference), window_sizes=WINDOWS, n_bootstraps=2500, **UNUSED)


def fisher(reference):
    """Fisher's exact test over three windows."""
    events = (columns(reference) > 0.5).astype(int)
    return FETDriftOnline(events, window_sizes=WINDOWS, n_bootstraps=2500, alternative="greater", **UNUSED)


def kernel(reference):
    """Maximum mean discrepancy over one window."""
    from alibi_detect.cd import MMDDriftOnline

    return MMDDriftOnline(
        columns(reference), window_size=window(reference), backend="pytorch", n_bootstraps=2500, **UNUSED
    )


def density(reference):
    """Least-squares density difference over one window."""
    from alibi_detect.cd import LSDDDriftOnline

    return LSDDDriftOnline(
        columns(reference), window_size=window(reference), backend="pytorch", n_bootstraps=2500, **UNUSED
    )


def window(reference):
    """100 samples; of a short reference a quarter, since twice the window is set aside."""
    return min(WINDOW, len(reference) // 4)


def columns(reference):
    """(500, f) of a reference."""
    return np.asarray(reference[:REFERENCE], np.float32).reshape(min(len(reference), REFERENCE), -1)


def largest(detector, value):
    """The largest statistic of windows and features; none before the first window is full."""
    found = detector.score(np.atleast_1d(np.asarray(value, np.float32)))
    return most(found)


def largest_event(detector, value):
    """The same for detectors of 0 or 1, which smooth with the statistics before."""
    found = detector.score(np.array([int(value > 0.5)]))
    detector.test_stats = found[None]
    return most(found)


def most(found):
    """Without windows that are not full."""
    values = np.asarray(found, np.float64).ravel()
    values = values[~np.isnan(values)]
    return float(values.max()) if len(values) else -np.inf


DETECTORS = {
    "CVM": (cramer, largest),
    "FET": (fisher, largest_event),
    "MMD": (kernel, largest),
    "LSDD": (density, largest),
}

if __name__ == "__main__":
    run(DETECTORS)

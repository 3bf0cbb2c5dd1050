"""Runs in alibi-detect's environment: its online detectors by the statistic that they compare with a threshold.

Their own thresholds are simulated for a run length; here one constant threshold is swept, which is what theirs become
once the windows are full.
"""

import warnings

warnings.simplefilter("ignore")

import logging  # noqa: E402
from functools import cache  # noqa: E402

import numpy as np  # noqa: E402
from alibi_detect.cd import CVMDriftOnline, FETDriftOnline, fet_online  # noqa: E402
from scipy.stats import hypergeom  # noqa: E402
from sweep import run  # noqa: E402

logging.disable(logging.WARNING)
WINDOWS, REFERENCE, WINDOW = [20, 60, 200], 500, 100
# The thresholds that are simulated are not used (of MMD and LSDD only that of the first window, which a start must
# keep): as few simulations as their run length can be told by. LSDD reads its regularisation from them too.
UNUSED = {"ert": 400.0, "n_bootstraps": 1200, "verbose": False}
FIRST = {"ert": 100.0, "n_bootstraps": 400, "verbose": False, "backend": "pytorch"}


class Remembered:
    """The hypergeometric distribution; the probability of each count is worked out once only."""

    def __init__(self):
        self.single = cache(hypergeom.cdf)

    def cdf(self, below, population, marked, drawn):
        """As `scipy.stats.hypergeom.cdf` with a single ``below`` and many ``marked``."""
        below = np.asarray(below).item()
        if np.size(marked) == 1:
            return np.array([self.single(below, population, np.asarray(marked).item(), drawn)])
        counts, places = np.unique(marked, return_inverse=True)
        every = np.array([self.single(below, population, one, drawn) for one in counts.tolist()])
        return every[places].reshape(np.shape(marked))


fet_online.hypergeom = Remembered()


class Unsimulated(CVMDriftOnline):
    """Without its thresholds, no part of which enters the statistic: simulating them took more than the streams."""

    def _configure_thresholds(self):
        """None."""


def cramer(reference):
    """Cramer-von Mises over three windows, the first 500 of the reference."""
    return Unsimulated(columns(reference), window_sizes=WINDOWS, **UNUSED)


def fisher(reference):
    """Fisher's exact test over three windows, the whole reference, of which only counts enter."""
    events = (columns(reference, len(reference)) > 0.5).astype(int)
    return FETDriftOnline(events, window_sizes=WINDOWS, alternative="greater", **UNUSED)


def kernel(reference):
    """Maximum mean discrepancy over one window."""
    from alibi_detect.cd import MMDDriftOnline

    size = min(WINDOW, len(reference) // 4)  # twice the window is set aside
    return MMDDriftOnline(columns(reference), window_size=size, **FIRST)


def density(reference):
    """Least-squares density difference over one window."""
    from alibi_detect.cd import LSDDDriftOnline

    size = min(WINDOW, len(reference) // 6)  # four times the window is set aside
    return LSDDDriftOnline(columns(reference), window_size=size, **FIRST)


def columns(reference, most=REFERENCE):
    """(most, f) of a reference."""
    return np.asarray(reference[:most], np.float32).reshape(min(len(reference), most), -1)


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

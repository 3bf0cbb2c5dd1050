"""Algorithm 3 of ours and of the reference package, timed."""

import time
import warnings
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from server_bridge.cohorts.cohorter import CLMACohorter

Matrix = NDArray[Any]


def ours(matrix: Matrix, reference: Matrix) -> Callable[[], object]:
    """``CLMACohorter`` as it is by default."""
    return lambda: CLMACohorter().cohort(range(len(matrix)), matrix, reference)


def peer(matrix: Matrix, reference: Matrix) -> Callable[[], object]:
    """The reference package on the same input.

    Raises:
        ModuleNotFoundError: it is not installed (`make oracle`).
    """
    import clma

    def run() -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn's, of parts with few clients
            return clma.CLMACohorter().cohort(list(range(len(matrix))), matrix, reference)

    return run


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    began_s = time.process_time()
    work()
    return time.process_time() - began_s

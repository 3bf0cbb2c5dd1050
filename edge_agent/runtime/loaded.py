"""How Python goes on once all is loaded."""

import gc
import sys

COLLECT_EVERY = 10_000
"""Objects that came and did not go. Python's own 700 are made and dropped by what waits for the recorder alone, and
looking through those was a tenth of what a sample costs at a batch of one (measured); 10,000 take about 1 MB."""
SWITCH_S = 1e-4
"""A thread that waits for Python asks for it after so long. By Python's own 5 ms a prediction that is done waits for
the recorder's next call that lets go: half of those waits go, 2 to 6 % of a busy loop's time (measured)."""


def let_in_soon() -> None:
    """Threads take turns at Python in time for the predictions."""
    sys.setswitchinterval(SWITCH_S)


def keep_what_is_loaded() -> None:
    """Never look it through for garbage; collect from now on only among what comes after.

    Else every so often a collection of everything holds up serving, for 33 ms, and finds next to nothing: 736 of
    60,000 objects at the end of a start (measured).
    """
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, *gc.get_threshold()[1:])
    gc.enable()

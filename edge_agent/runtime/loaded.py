"""What the start has made stays."""

import gc

COLLECT_EVERY = 10_000
"""Objects that came and did not go. Python's own 700 are made and dropped by what waits for the recorder alone, and
looking through those was a tenth of what a sample costs at a batch of one (measured); 10,000 take about 1 MB."""


def keep_what_is_loaded() -> None:
    """Never look it through for garbage; collect from now on only among what comes after.

    Else every so often a collection of everything holds up serving, for 33 ms, and finds next to nothing: 736 of
    60,000 objects at the end of a start (measured).
    """
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, *gc.get_threshold()[1:])
    gc.enable()

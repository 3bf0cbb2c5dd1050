"""What the start has made stays."""

import gc


def keep_what_is_loaded() -> None:
    """Look it through once, never again, and collect from now on only what comes after.

    Else every so often a collection of everything holds up serving, for 20 ms (measured).
    """
    gc.collect()
    gc.freeze()
    gc.enable()

"""``server-bridge demo``: what ends it ends its processes too."""

import os
import signal
import time

import pytest

from server_bridge.cli.demo import unwound_by_signals


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_end_from_outside_unwinds_the_stack(number: signal.Signals, status: int) -> None:
    unwound = []
    before = signal.signal(number, signal.SIG_DFL)  # what a terminal gives; nohup would have it ignored

    def hold_a_child() -> None:
        with unwound_by_signals():
            try:
                os.kill(os.getpid(), number)
                time.sleep(5)
            finally:
                unwound.append(number)

    try:
        with pytest.raises(SystemExit) as caught:
            hold_a_child()
    finally:
        signal.signal(number, before)
    assert (caught.value.code, unwound) == (status, [number])


def test_what_was_started_to_outlive_its_terminal_does() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with unwound_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)

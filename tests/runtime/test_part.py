"""The one shell of the agent's threads."""

import threading
import time

from edge_agent.runtime.part import Part, ThreadPart


class Beating(ThreadPart):
    def __init__(self) -> None:
        super().__init__("beating")
        self.rounds = 0

    def _work(self) -> None:
        while not self._stopping.wait(0.005):
            self.rounds += 1


class Failing(ThreadPart):
    def __init__(self) -> None:
        super().__init__("failing")

    def _work(self) -> None:
        raise RuntimeError("a defect")


class Deaf(ThreadPart):
    def __init__(self) -> None:
        super().__init__("deaf")
        self.released = threading.Event()

    def _work(self) -> None:
        self.released.wait(60)


def until_ended(part: Part) -> None:
    deadline_s = time.monotonic() + 60
    while part.alive and time.monotonic() < deadline_s:
        time.sleep(0.005)


def test_it_lives_from_start_to_stop() -> None:
    part = Beating()
    lived = [part.alive]
    part.start()
    lived.append(part.alive)
    assert "beating" in {thread.name for thread in threading.enumerate() if thread.daemon}
    part.stop(60.0)
    lived.append(part.alive)
    assert (lived, part.failure) == ([False, True, False], None)


def test_what_ended_it_is_kept_for_the_supervisor_and_does_not_escape() -> None:
    part = Failing()
    part.start()
    until_ended(part)
    assert not part.alive
    assert isinstance(part.failure, RuntimeError)
    part.stop(1.0)


def test_one_that_was_never_started_can_be_stopped() -> None:
    part = Beating()
    part.stop(1.0)
    assert not part.alive


def test_one_that_does_not_listen_is_left_behind_in_time() -> None:
    part = Deaf()
    part.start()
    began_s = time.monotonic()
    part.stop(0.1)
    assert time.monotonic() - began_s < 30.0
    assert part.alive
    part.released.set()
    until_ended(part)

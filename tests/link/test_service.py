import os
from pathlib import Path

import pytest

from edge_agent.link.service import Pulse, ServiceNotifier, Watchdog
from tests.service_manager import ServiceManager


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> ServiceManager:
    abstract = f"@clma-edge-test-{os.getpid()}-{tmp_path.name}"
    return ServiceManager(tmp_path / "notify" if request.param == "path" else abstract)


def test_it_says_ready_status_stopping_and_feeds(manager: ServiceManager) -> None:
    with manager:
        notifier = ServiceNotifier(manager.address, watchdog_s=10.0)
        notifier.ready("serving\n as gw1")
        notifier.feed()
        notifier.status("hanging: recorder")
        notifier.stopping()
        assert manager.listen(0.2) == [
            "READY=1\nSTATUS=serving as gw1",
            "WATCHDOG=1",
            "STATUS=hanging: recorder",
            "STOPPING=1\nSTATUS=stopping",
        ]


def test_it_feeds_four_times_an_interval_and_only_a_watchdog(manager: ServiceManager) -> None:
    clock = Clock()
    with manager:
        notifier = ServiceNotifier(manager.address, watchdog_s=4.0, monotonic_s=clock)
        for _ in range(33):
            notifier.feed()
            clock.now_s += 0.125
        ServiceNotifier(manager.address).feed()
        assert manager.listen(0.2) == ["WATCHDOG=1"] * 5


@pytest.mark.parametrize(
    ("given", "interval_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_environment_says_who_watches_and_is_not_passed_on(
    given: dict[str, str], interval_s: float | None, tmp_path: Path
) -> None:
    with ServiceManager(tmp_path / "notify") as manager:
        environment = {"NOTIFY_SOCKET": manager.address, "PATH": "/bin", **given}
        notifier = ServiceNotifier.from_environment(environment)
        assert environment == {"PATH": "/bin"}
        assert notifier.watchdog_s == interval_s
        notifier.ready("here")
        assert manager.listen(0.2) == ["READY=1\nSTATUS=here"]


@pytest.mark.parametrize("address", [None, "", "@", "vsock:2:1234", "relative"])
def test_without_a_manager_it_is_silent(address: str | None) -> None:
    environment = {} if address is None else {"NOTIFY_SOCKET": address}
    ServiceNotifier.from_environment(environment).ready("nobody hears")


def test_a_manager_that_does_not_listen_ends_and_blocks_nothing(tmp_path: Path) -> None:
    notifier = ServiceNotifier(str(tmp_path / "gone"), watchdog_s=1e-9)
    notifier.ready("into the void")
    with ServiceManager(tmp_path / "notify") as manager:
        deaf = ServiceNotifier(manager.address, watchdog_s=1e-9)
        for _ in range(2000):  # more than the socket's queue holds
            deaf.feed()
        assert 0 < len(manager.listen(0.2)) < 2000


def test_the_watchdog_starves_while_a_part_hangs_and_is_fed_when_all_move(manager: ServiceManager) -> None:
    clock = Clock()
    pulses = {name: Pulse(clock) for name in ("pipeline", "recorder")}
    with manager:
        watchdog = Watchdog(ServiceNotifier(manager.address, 4.0, monotonic_s=clock), pulses)

        def pass_s(seconds: int, *beating: str) -> list[str]:
            for _ in range(seconds):
                clock.now_s += 1.0
                for name in beating:
                    pulses[name].beat()
                watchdog.look()
            return manager.listen(0.2)

        assert pass_s(8, "pipeline", "recorder") == ["WATCHDOG=1"] * 8
        assert pass_s(8, "recorder") == ["WATCHDOG=1"] * 4 + ["STATUS=hanging: pipeline"]
        assert pass_s(8, "recorder") == []
        assert pass_s(2, "pipeline", "recorder") == ["STATUS=running", "WATCHDOG=1", "WATCHDOG=1"]


def test_a_part_at_rest_starves_nobody_and_a_patient_one_may_take_longer(manager: ServiceManager) -> None:
    clock = Clock()
    rests, slow = Pulse(clock), Pulse(clock)
    rests.rest()
    with manager:
        notifier = ServiceNotifier(manager.address, 4.0, monotonic_s=clock)
        watchdog = Watchdog(notifier, {"source": rests, "controller": slow}, {"controller": 10.0})
        clock.now_s += 40.0
        watchdog.look()
        clock.now_s += 1.0
        watchdog.look()
        assert manager.listen(0.2) == ["WATCHDOG=1", "STATUS=hanging: controller"]


def test_without_a_watchdog_nothing_is_said(tmp_path: Path) -> None:
    with ServiceManager(tmp_path / "notify") as manager:
        Watchdog(ServiceNotifier(manager.address), {"source": Pulse(lambda: 0.0)}).look()
        assert manager.listen(0.1) == []

"""TLS where the gateway's clock may be wrong: the chain and the host always count, dates by clock and floor."""

import queue
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from edge_agent.link.events import Connected, Disconnected, SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import CLOCK_FAR_AHEAD_S, Backoff, BrokerSettings, TimeJudge, TlsSettings
from edge_agent.link.tls import BadDates, check_dates, tls_context
from server_bridge.demo.broker import Mosquitto
from server_bridge.pki.authority import Authority
from server_bridge.pki.certificates import issue, utc_now
from server_bridge.pki.folder import write_credentials
from tests.broker import new_mosquitto

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S
BEGINS_S, ENDS_S = 1_700_000_000.0, 1_700_000_000.0 + 5 * YEAR_S
SHOWN = {"notBefore": "Nov 14 22:13:20 2023 GMT", "notAfter": "Nov 12 22:13:20 2028 GMT"}


@pytest.mark.parametrize(
    ("clock_s", "floor_s", "verdict"),
    [
        (BEGINS_S + DAY_S, BEGINS_S, "valid"),
        (0.0, BEGINS_S + DAY_S, "valid"),  # the clock is wrong and the floor knows better
        (BEGINS_S, 0.0, "valid"),
        (ENDS_S, 0.0, "valid"),
        (0.0, BEGINS_S - DAY_S, "tolerated"),  # clock below the floor, certificate newer than the floor
        (BEGINS_S - DAY_S, BEGINS_S - 2 * DAY_S, "refused"),  # the clock is above the floor: no reason to doubt it
        (0.0, 0.0, "refused"),
        (ENDS_S + 1, ENDS_S - DAY_S, "refused"),
        (0.0, ENDS_S + 1, "refused"),  # surely expired, whatever the clock says
        (ENDS_S + 60 * YEAR_S, ENDS_S + 1, "refused"),
        (BEGINS_S + CLOCK_FAR_AHEAD_S + 2, BEGINS_S + 1, "tolerated"),  # only a clock far ahead says so
        (BEGINS_S + CLOCK_FAR_AHEAD_S, BEGINS_S + 1, "refused"),
        (4_070_908_800.0, BEGINS_S + DAY_S, "tolerated"),  # 2099
        (4_070_908_800.0, 0.0, "refused"),  # no floor: nothing says that the clock is wrong
    ],
)
def test_dates(clock_s: float, floor_s: float, verdict: str) -> None:
    reports: list[str] = []
    judge = TimeJudge(lambda: floor_s, reports.append)
    if verdict == "refused":
        with pytest.raises(BadDates):
            check_dates(SHOWN, judge, clock_s)
    else:
        check_dates(SHOWN, judge, clock_s)
    assert len(reports) == (verdict == "tolerated")


@pytest.mark.parametrize("shown", [None, {}, {"notBefore": SHOWN["notBefore"]}])
def test_no_dates_are_refused(shown: dict[str, object] | None) -> None:
    with pytest.raises(BadDates, match="no certificate"):
        check_dates(shown, TimeJudge(lambda: BEGINS_S), BEGINS_S)


def test_an_impossible_clock_is_still_named() -> None:
    with pytest.raises(BadDates, match="expired"):
        check_dates(SHOWN, TimeJudge(lambda: 0.0), 1e18)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    write_credentials(tmp_path / "tls", {"ca.crt": b""})
    settings = TlsSettings(tmp_path / "tls" / "ca.crt", credentials=tmp_path / "tls")
    with pytest.raises(OSError, match=r"gw1\.up\.crt"):
        tls_context(settings, "gw1.up")


def test_credentials_by_client_id(tmp_path: Path) -> None:
    tls = TlsSettings(tmp_path / "ca.crt", credentials=tmp_path)
    assert tls.own_files("gw1.up") == (tmp_path / "gw1.up.crt", tmp_path / "gw1.up.key")
    one = TlsSettings(tmp_path / "ca.crt", tmp_path / "c.pem", tmp_path / "k.pem")
    assert one.own_files("gw1.up") == one.own_files("gw1") == (tmp_path / "c.pem", tmp_path / "k.pem")
    assert TlsSettings(tmp_path / "ca.crt").own_files("gw1") is None


class Place:
    """A broker whose certificate was made for one day, some days ago."""

    def __init__(self, directory: Path, days_ago: int) -> None:
        self.authority = Authority.create(directory, "fleet")
        pair = issue(
            self.authority._pair, "broker", hosts=["127.0.0.1"], days=1, now=utc_now() - timedelta(days=days_ago)
        )
        self.tls = directory / "tls"
        files = {"broker.crt": pair.certificate_pem, "broker.key": pair.key_pem, **self.authority.gateway("gw1")}
        write_credentials(self.tls, files)
        self.broker: Mosquitto = new_mosquitto(
            directory,
            f"cafile {self.tls / 'ca.crt'}",
            f"certfile {self.tls / 'broker.crt'}",
            f"keyfile {self.tls / 'broker.key'}",
            "require_certificate true",
        )

    def enter(self, judge: TimeJudge | None, *, host: str = "127.0.0.1", ca: Path | None = None) -> SessionEvent:
        """What comes of one attempt."""
        tls = TlsSettings(ca or self.tls / "ca.crt", credentials=self.tls, judge=judge)
        inbox: queue.Queue[SessionEvent] = queue.Queue(100)
        session = MqttSession(
            BrokerSettings(host, self.broker.port, tls=tls),
            "gw1",
            clean_start=True,
            session_expiry_s=0,
            inbox=inbox,
            backoff=Backoff(60, 60),
        )
        session.start()
        try:
            return inbox.get(timeout=60)
        finally:
            session.stop(2)
            assert session.failure is None


@pytest.fixture
def expired(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path, days_ago=10)
    yield place
    place.broker.kill()


@pytest.fixture
def early(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path, days_ago=-10)
    yield place
    place.broker.kill()


@pytest.mark.mosquitto
def test_an_expired_broker_is_refused_before_it_hears_a_word(expired: Place) -> None:
    for judge in (None, TimeJudge(lambda: time.time() - DAY_S)):
        event = expired.enter(judge)
        assert isinstance(event, Disconnected)
        assert "expired" in event.reason
    assert "New client connected" not in expired.broker.log_end(10_000)


@pytest.mark.mosquitto
def test_a_clock_far_ahead_does_not_cut_the_gateway_off(expired: Place, tmp_path: Path) -> None:
    reports: list[str] = []
    judge = TimeJudge(lambda: time.time() - CLOCK_FAR_AHEAD_S - YEAR_S, reports.append)
    assert isinstance(expired.enter(judge), Connected)
    assert "the clock is wrong" in reports[0]
    for other in (expired.enter(judge, host="localhost"), expired.enter(judge, ca=_stranger(tmp_path))):
        assert isinstance(other, Disconnected)
        assert "SSLCertVerificationError" in other.reason


@pytest.mark.mosquitto
def test_a_clock_below_the_floor_does_not_cut_the_gateway_off(early: Place, tmp_path: Path) -> None:
    reports: list[str] = []
    judge = TimeJudge(lambda: time.time() + DAY_S, reports.append)
    assert isinstance(early.enter(judge), Connected)
    assert "valid from" in reports[0]
    refused = early.enter(TimeJudge(lambda: time.time() - DAY_S))
    assert isinstance(refused, Disconnected)
    assert "BadDates" in refused.reason
    assert isinstance(early.enter(judge, ca=_stranger(tmp_path)), Disconnected)


def _stranger(directory: Path) -> Path:
    folder = directory / "stranger"
    if not folder.exists():
        Authority.create(folder, "fleet")
    return folder / "pki" / "ca.crt"

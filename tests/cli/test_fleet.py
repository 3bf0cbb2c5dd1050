"""``server-bridge gateway ignore`` and ``readmit``, as typed, and what ``fleet`` and ``log`` then show."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import server_bridge
from edge_agent.errors import ConfigError
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.messages import (
    ClockTrust,
    CountsBucket,
    CountsEvent,
    Event,
    Overlay,
    Presence,
    State,
    TrustedVersions,
)
from server_bridge.cli.commands import app as program
from server_bridge.cli.flag_words import flag_words
from server_bridge.cli.fleet import app
from server_bridge.folder_lock import lock_folder
from server_bridge.releases.provision import init_fleet
from server_bridge.store.merges import MERGED, REFUSED
from server_bridge.store.store import Store, store_url
from tests.cli.test_flag_words import LEAST
from tests.training.tiny_bundle import tiny_bundle
from tests.wire.test_manifest import manifest


@pytest.fixture
def settings(tmp_path: Path) -> str:
    init_fleet(tmp_path / "bridge", tiny_bundle(tmp_path / "bundle").path, "plant")
    path = str(tmp_path / "bridge" / "bridge.toml")
    _typed("gateway", "provision", "gw1", "gw2", "-o", str(tmp_path / "gateways"), "-c", path)
    return path


def _typed(*words: str) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_gateway_is_ignored_and_readmitted_on_record(settings: str) -> None:
    assert "gw1 is ignored" in _typed("gateway", "ignore", "gw1", "--why", "stolen", "-c", settings)
    assert "already" in _typed("gateway", "ignore", "gw1", "-c", settings)
    views = {view["id"]: view for view in json.loads(_typed("fleet", "--json", "-c", settings))}
    assert (views["gw1"]["ignored"], views["gw2"]["ignored"]) == ("stolen", None)
    assert "gw1: ignored: stolen" in _typed("fleet", "-c", settings)
    assert "listened to again" in _typed("gateway", "readmit", "gw1", "-c", settings)
    assert "was not ignored" in _typed("gateway", "readmit", "gw1", "-c", settings)
    log = [(each["kind"], each["reason"]) for each in json.loads(_typed("log", "--json", "-c", settings))]
    assert log == [("gateway", "ignored"), ("gateway", "readmitted")]


def test_drops_are_shown_by_gateway_and_reason(settings: str) -> None:
    data_dir = Path(settings).parent
    store = Store(store_url(data_dir), data_dir / "blobs")
    store.drops.add({("gw1", "quota"): 7, ("gw1", "topic"): 2})
    store.close()
    (first, second) = json.loads(_typed("fleet", "--json", "-c", settings))
    assert (first["dropped"], first["drops"]) == (9, {"quota": 7, "topic": 2})
    assert (second["dropped"], second["drops"]) == (0, {})
    assert "gw1: dropped quota 7, topic 2" in _typed("fleet", "-c", settings)


def test_beside_a_stopped_bridge_the_table_says_so_and_as_of_when(settings: str) -> None:
    data_dir = Path(settings).parent
    store = Store(store_url(data_dir), data_dir / "blobs")
    store.gateways.set_presence(Presence(gateway="gw1", boot_id="b", connection=1, online=True), 1_700_000_000.0)
    store.close()
    shown = _typed("fleet", "-c", settings)
    assert "the bridge is not running: presences are as it knew them last (2023-11-1" in shown
    assert not json.loads(_typed("fleet", "--json", "-c", settings))[0]["bridge_running"]
    lock = lock_folder(data_dir)
    try:
        assert "not running" not in _typed("fleet", "-c", settings)
        assert json.loads(_typed("fleet", "--json", "-c", settings))[0]["bridge_running"]
    finally:
        os.close(lock)
    assert "not running" in _typed("fleet", "-c", settings)


def _state(bundle: str, cohort: str) -> State:
    return State(
        gateway="gw1",
        boot_id="b",
        agent_version="1",
        bundle=bundle,
        weights="2" * 64,
        weights_version=2,
        cohort=cohort,
        ota_state="committed",
        trusted=TrustedVersions(root=1, timestamp=1, snapshot=1, targets=1, release=1),
        clock=ClockTrust(trusted=True, floor_s=0.0),
        trainable_samples=0,
        training=False,
    )


def _counted(settings: str, bundle: str) -> Path:
    """A gateway that runs its second weights; its holdout samples were counted under both."""
    data_dir = Path(settings).parent
    store = Store(store_url(data_dir), data_dir / "blobs")
    store.gateways.set_state(_state(bundle, "root"), 1.0)
    for sequence, (weights, version, bucket, right) in enumerate(
        [("1" * 64, 1, 0, 10), ("1" * 64, 1, 7, 4), ("2" * 64, 2, 8, 9), ("2" * 64, 2, 9, 9)]
    ):
        buckets = [CountsBucket(bucket=bucket, labelled=10, right=right, loss_sum=1.0)]
        counts = CountsEvent(
            bundle=bundle, weights=weights, weights_version=version, cohort="root", bucket_s=60.0, buckets=buckets
        )
        store.counts.replace(Event(gateway="gw1", epoch="e", sequence=sequence, low=0, time_s=0.0, body=counts), counts)
    store.close()
    return data_dir


def test_a_gateway_that_adapts_between_rounds_is_shown_by_what_predicts_there(settings: str) -> None:
    """What its overlay got right stands beside it; of the release that it lies on stays what was counted before."""
    data_dir = _counted(settings, "b" * 64)
    store = Store(store_url(data_dir), data_dir / "blobs")
    laid = Overlay(digest="3" * 64, batches=5)
    store.gateways.set_state(_state("b" * 64, "root").model_copy(update={"overlay": laid}), 2.0)
    counts = CountsEvent(
        bundle="b" * 64,
        weights=laid.digest,
        weights_version=2,
        cohort="root",
        bucket_s=60.0,
        buckets=[CountsBucket(bucket=9, labelled=10, right=3, loss_sum=1.0)],
        release="2" * 64,
        overlay_batches=5,
    )
    store.counts.replace(Event(gateway="gw1", epoch="e", sequence=9, low=0, time_s=0.0, body=counts), counts)
    assert store.counts.accuracies()["gw1", "2" * 64].now == 0.9
    store.close()
    view = json.loads(_typed("fleet", "--json", "-c", settings))[0]
    assert (view["weights_version"], view["overlay_batches"], view["accuracy"]["now"]) == (2, 5, 0.3)
    shown = _typed("fleet", "-c", settings)
    assert "v2 +5" in shown
    assert "holdout accuracy of root" not in shown + _typed("log", "-c", settings)


def test_accuracy_before_and_now_is_that_of_the_last_spans_of_each_weights(settings: str) -> None:
    data_dir = _counted(settings, "b" * 64)
    (first, second) = json.loads(_typed("fleet", "--json", "-c", settings))
    assert first["accuracy"] == {
        "before": 0.4,
        "now": 0.9,
        "labelled": 20,
        "labelled_before": 10,
        "loss_before": pytest.approx(0.1),
        "loss_now": pytest.approx(0.1),
    }
    assert second["accuracy"] is None
    assert "40% -> 90%" in _typed("fleet", "-c", settings)
    told = "holdout accuracy of root, before and now: 40% -> 90% (1 gateways)"
    assert told not in _typed("log", "-c", settings)
    store = Store(store_url(data_dir), data_dir / "blobs")
    store.decisions.record("adaptation-done", "released", "release 2: 1 cohorts changed", 1.0, adaptation="a1")
    store.close()
    assert _typed("log", "-c", settings).splitlines()[-1] == told


def test_a_regression_is_told_by_its_losses(settings: str) -> None:
    payload = manifest(kind="regression", classes=None, loss="mse")
    folder = Path(settings).parent / "bundles" / sha256_hex(payload)
    folder.mkdir()
    (folder / "manifest.json").write_bytes(payload)
    data_dir = _counted(settings, folder.name)
    assert "loss 0.1 -> 0.1" in _typed("fleet", "-c", settings)
    store = Store(store_url(data_dir), data_dir / "blobs")
    store.decisions.record("adaptation-done", "released", "release 2: 1 cohorts changed", 1.0, adaptation="a1")
    store.close()
    told = "holdout loss of root, before and now: 0.1 -> 0.1 (1 gateways)"
    assert _typed("log", "-c", settings).splitlines()[-1] == told


def test_a_merge_is_shown_beside_its_gateways_until_they_run_the_other_weights(settings: str) -> None:
    data_dir, bundle = Path(settings).parent, "b" * 64
    store = Store(store_url(data_dir), data_dir / "blobs")
    store.gateways.set_state(_state(bundle, "c2"), 1.0)
    refused = store.merges.ask(bundle, "c2", "c9", asked_by="bob", why="by mistake", now_s=1.0)
    store.merges.end(refused, REFUSED, "there is no cohort 'c9'", 1.5)
    number = store.merges.ask(bundle, "c2", "c1", asked_by="ann", why="alike", now_s=2.0)
    assert "gw1: cohort c2 is to go into c1 (asked by ann at" in _typed("fleet", "-c", settings)
    assert json.loads(_typed("fleet", "--json", "-c", settings))[0]["merge"]["status"] == "queued"
    store.merges.end(number, MERGED, "release 7", 3.0)
    assert "gw1: cohort c2 went into c1, release 7 (asked by ann at" in _typed("fleet", "-c", settings)
    store.gateways.set_state(_state(bundle, "c1"), 4.0)
    store.close()
    assert "cohort c2" not in _typed("fleet", "-c", settings)


def test_the_log_tells_flags_between_the_decisions_that_they_led_to(settings: str) -> None:
    data_dir = Path(settings).parent
    store = Store(store_url(data_dir), data_dir / "blobs")
    for time_s, reason in ((10.0, "too-few-flags"), (30.0, "flags-settled")):
        store.decisions.record("wait", reason, "why", time_s)
    for time_s, firing in ((5.0, 0), (20.0, 1)):
        flag = LEAST.model_copy(update={"flag_id": f"{firing}" * 64, "firing": firing})
        store.flags.record("gw1", flag, time_s)
    store.close()
    told = [line.split(" ", 2)[2] for line in _typed("log", "-c", settings).splitlines()]
    assert told == ["wait: too-few-flags: why", f"flag: gw1: open: {flag_words(LEAST)}", "wait: flags-settled: why"]


def test_an_id_that_is_not_registered_is_an_operators_error(settings: str) -> None:
    for command in ("ignore", "readmit"):
        with pytest.raises(ConfigError, match="gw9"):
            CliRunner().invoke(app, ["gateway", command, "gw9", "-c", settings], catch_exceptions=False)


@pytest.mark.parametrize("broker", ["h", ":1", "h:0", "h:99999", "h:１２", 'h"\n:1883', "a b:1883", "h:" + "1" * 5000])
def test_what_is_no_broker_founds_no_fleet(tmp_path: Path, broker: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        CliRunner().invoke(
            app, ["init", "--bundle", ".", "-d", str(tmp_path / "new"), "--broker", broker], catch_exceptions=False
        )
    assert not (tmp_path / "new").exists()


def test_an_address_may_be_a_broker(tmp_path: Path) -> None:
    bundle = str(tiny_bundle(tmp_path / "bundle").path)
    for number, broker in enumerate(("[::1]:1883", "10.0.0.7:1883", "Broker_1.plant.example:8883")):
        _typed("init", "--bundle", bundle, "-d", str(tmp_path / str(number)), "--broker", broker)


def test_an_id_given_twice_is_refused_before_anything_is_written(settings: str, tmp_path: Path) -> None:
    words = ["gateway", "provision", "gw3", "gw3", "-o", str(tmp_path / "more"), "-c", settings]
    with pytest.raises(ConfigError, match="'gw3' is given 2 times"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not (tmp_path / "more").exists()


def test_a_mistyped_data_folder_is_not_made_and_shown_as_an_empty_fleet(settings: str, tmp_path: Path) -> None:
    path = Path(settings)
    path.write_text(path.read_text().replace("[bridge]", f'[bridge]\ndata_dir = "{tmp_path}/typo"'))
    for command in ("fleet", "log"):
        with pytest.raises(ConfigError, match="typo does not exist"):
            CliRunner().invoke(app, [command, "-c", settings], catch_exceptions=False)
    assert not (tmp_path / "typo").exists()


def test_more_lines_than_a_database_can_count_are_wrong_use(settings: str) -> None:
    assert CliRunner().invoke(app, ["log", "-n", str(10**20), "-c", settings]).exit_code == 2


def test_the_version_is_printed() -> None:
    done = CliRunner().invoke(program, ["version"])
    assert (done.exit_code, done.output) == (0, f"{server_bridge.__version__}\n")

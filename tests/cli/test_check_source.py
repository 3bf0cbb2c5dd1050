"""``edge-agent check``: whether a source speaks, and what is made of its first samples and labels."""

import json
import queue
from pathlib import Path

import numpy as np
import pytest

from edge_agent.cli.check_source import misfit
from edge_agent.link.events import SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.sources.source import SourceBatch
from edge_agent.wire.manifest import Manifest
from tests.broker import CLOSED_PORT, Mosquitto
from tests.bundles.tailor.backbones import residual, tailored_bundle
from tests.cli.checked import check, keep
from tests.e2e.gateway import gateway_folder
from tests.training.tiny_bundle import tiny_bundle


def samples(*tasks: str | None) -> SampleBatch:
    ids = [f"s{place}" for place in range(len(tasks))]
    return SampleBatch(ids, [0.0] * len(ids), {"x": np.zeros((len(ids), 1), np.float32)}, tasks=list(tasks))


@pytest.fixture(scope="module")
def tailored(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return tailored_bundle(tmp_path_factory.mktemp("tasks"), residual()).manifest


def test_samples_and_labels_of_known_tasks_and_classes_fit(tailored: Manifest, tmp_path: Path) -> None:
    most = max(task.classes or 0 for task in tailored.tasks)
    assert misfit(SourceBatch(samples("weld", None, "press"), [Label("a", 0), Label("b", most - 1.0)]), tailored) == ""
    assert misfit(SourceBatch(samples("any"), []), tiny_bundle(tmp_path / "tiny").manifest) == ""


def test_a_task_that_the_bundle_does_not_have_is_named(tailored: Manifest) -> None:
    problem = misfit(SourceBatch(samples("press", "mill"), []), tailored)
    assert problem == "sample 's1' is of task 'mill', the bundle has press, weld"


@pytest.mark.parametrize("value", [-1, 0.5, 99])
def test_a_label_that_is_no_class_is_named(tailored: Manifest, value: float) -> None:
    problem = misfit(SourceBatch(samples("press"), [Label("a", 0), Label("b", value)]), tailored)
    assert problem.startswith(f"label {value:g} of sample 'b' is no class, 0..")


def test_a_recording_that_is_silent(settings: Path) -> None:
    text = settings.read_text().replace("rate_hz = 200.0", "rate_hz = 0.01")
    settings.write_text(text)
    found = check(settings, "--source-wait-s", "1")
    assert found.failed == ["broker", "source"]
    assert "is silent: no sample in 1 s" in found.saw["source"]
    assert "rate_hz" in found.remedy["source"]


def live_source(settings: Path, port: int) -> None:
    head, _, tail = settings.read_text().partition("[source]")
    rest = tail.partition("\n[")
    source = (
        f'[source]\nkind = "mqtt"\nhost = "127.0.0.1"\nport = {port}\n'
        'samples_topic = "plant/samples"\nlabels_topic = "plant/labels"\n'
    )
    settings.write_text(head + source + rest[1] + rest[2])


def test_a_live_source_that_is_silent_or_closed(bridge: Path, tmp_path: Path, mosquitto: Mosquitto) -> None:
    settings = gateway_folder(bridge, tmp_path / "gateways", mosquitto.port)
    live_source(settings, mosquitto.port)
    found = check(settings, "--source-wait-s", "1")
    assert found.failed == ["source"]
    assert "'plant/samples' at 127.0.0.1" in found.saw["source"]
    assert "is silent: no message in 1 s" in found.saw["source"]
    assert "samples_topic" in found.remedy["source"]
    live_source(settings, CLOSED_PORT)
    found = check(settings, "--source-wait-s", "1")
    assert (found.failed, "nothing listens there" in found.saw["source"]) == (["source"], True)
    assert "check [source] host and port" in found.remedy["source"]


@pytest.mark.parametrize("fits", [True, False])
def test_a_live_source_that_speaks(bridge: Path, tmp_path: Path, mosquitto: Mosquitto, fits: bool) -> None:
    settings = gateway_folder(bridge, tmp_path / "gateways", mosquitto.port)
    live_source(settings, mosquitto.port)
    width = 8 if fits else 7
    sample = {"id": "a", "time": 1.0, "features": {"x": [0.0] * width}}
    inbox: queue.Queue[SessionEvent] = queue.Queue(100)
    plant = MqttSession(
        BrokerSettings("127.0.0.1", mosquitto.port), "plant", clean_start=True, session_expiry_s=0, inbox=inbox
    )
    plant.start()
    try:
        keep(plant, inbox, "plant/samples", json.dumps(sample).encode())
        found = check(settings, "--source-wait-s", "30" if fits else "4")
    finally:
        plant.stop(2.0)
    assert found.failed == ([] if fits else ["source"])
    if not fits:
        assert "features.x: shape [7], [8] is needed" in found.saw["source"]

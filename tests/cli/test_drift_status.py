"""``edge-agent drift status``: from the status file, and what it says where there is none."""

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge_agent.cli.drift import app
from edge_agent.cli.drift_status import lines
from edge_agent.cli.exits import Exit
from edge_agent.errors import ConfigError, DataError
from edge_agent.runtime.drift_status import (
    DRIFT_KEY,
    AccuracyStatus,
    Changed,
    DriftStatus,
    FaultStatus,
    LabelStatus,
    MonitorStatus,
)
from edge_agent.runtime.instance import InstanceLock

ALARMED = DriftStatus(
    verdict="alarm",
    why="loss-level 14.2 above 9.1",
    rule="loss-level",
    severity=0.4,
    severity_of="loss",
    shift="covariate",
    flags=3,
    open_flag="ab" * 32,
    first_drifted_sample="s-1041",
    monitors=[
        MonitorStatus(
            name="loss-level",
            sees="labelled",
            level="alarm",
            batches=40,
            batch_size=32,
            waiting=5,
            statistic=14.2,
            threshold=9.1,
            warning_threshold=6.8,
            false_alarm_rate=5e-4,
            attributions=[Changed(name="loss", before=0.2, now=0.9)],
            judged_time_s=1.4e9,
        ),
        MonitorStatus(name="label-free", sees="served", flags=False, problem="no finite output"),
    ],
    labels=LabelStatus(labelled=30, served=100, says="30 of 100 labelled, half within 60 s"),
    accuracy=AccuracyStatus(refused="inputs outside of the reference"),
    faults=[FaultStatus(feature="pressure", fault="stuck", share=0.5)],
)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    path = tmp_path / "agent.toml"
    path.write_text('[gateway]\nid = "gw1"\nfleet = "line1"\n[source]\nkind = "replay"\npath = "stream.npz"\n')
    return path


def written(settings: Path, status: object) -> None:
    (settings.parent / "data" / "status.json").write_text(json.dumps(status))


def test_the_verdict_and_all_it_rests_on_are_told() -> None:
    said = "\n".join(lines(ALARMED, running=True, age_s=4.0))
    for part in (
        "alarm: loss-level 14.2 above 9.1",
        "as of 4 s ago",
        "severity 0.40 by loss, covariate shift",
        "flags: 3 raised, abababababab is open, first drifted sample s-1041",
        "loss-level (decides): alarm, statistic 14.2 of 9.1, warning 6.8, 0.0005 false alarms a batch",
        "40 batches of 32 labelled samples",
        "the latest of 2014-05-13 16:53:20, 5 wait",
        "loss: 0.2 before, 0.9 now (100 % of it)",
        "label-free (warns only): none, nothing judged yet",
        "not judged: no finite output",
        "labels: 30 of 100 labelled, half within 60 s",
        "accuracy without labels: refused: inputs outside of the reference",
        "fault: pressure is stuck on 50 % of its latest readings",
    ):
        assert part in said


def test_a_running_agents_status_is_printed_and_as_json(settings: Path) -> None:
    written(settings, {"written_s": time.time() - 3, DRIFT_KEY: ALARMED.to_document()})
    lock = InstanceLock(settings.parent / "data")
    try:
        told = CliRunner().invoke(app, ["status", "-c", str(settings)])
        document = CliRunner().invoke(app, ["status", "-c", str(settings), "--json"])
    finally:
        lock.release()
    assert (told.exit_code, document.exit_code) == (Exit.OK, Exit.OK)
    assert told.stdout.startswith("alarm: ")
    read = json.loads(document.stdout)
    assert read["running"] is True
    assert 2 <= read["age_s"] <= 60
    assert DriftStatus.model_validate(read) == ALARMED


def test_the_last_word_of_a_stopped_agent_is_a_problem(settings: Path) -> None:
    written(settings, {"written_s": time.time() - 3, DRIFT_KEY: DriftStatus().to_document()})
    told = CliRunner().invoke(app, ["status", "-c", str(settings)])
    assert told.exit_code == Exit.PROBLEM
    assert "the agent does NOT run" in told.stdout


def test_before_the_first_status_there_is_nothing_to_say(settings: Path) -> None:
    told = CliRunner().invoke(app, ["status", "-c", str(settings)])
    assert told.exit_code == Exit.PROBLEM, "nobody runs"
    assert "nothing written yet" in told.stdout


@pytest.mark.parametrize(
    ("status", "kind", "problem"),
    [
        ({"written_s": 1.0}, ConfigError, "says nothing of drift"),
        ({"written_s": 1.0, DRIFT_KEY: {"verdict": "perhaps"}}, DataError, "drift.verdict"),
    ],
)
def test_a_status_that_is_none_is_named(settings: Path, status: object, kind: type[Exception], problem: str) -> None:
    written(settings, status)
    result = CliRunner().invoke(app, ["status", "-c", str(settings)])
    assert isinstance(result.exception, kind)
    assert problem in str(result.exception)

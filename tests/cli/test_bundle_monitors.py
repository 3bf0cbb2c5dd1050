"""False alarms and features as options."""

from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from edge_agent.errors import ConfigError, DataError
from server_bridge.cli.bundle import app
from server_bridge.cli.bundle_monitors import features_of, wish_of
from tests.bundles.nets import classified, conv1d, save_npz


def test_features_are_named_with_unit_and_limits() -> None:
    found = features_of(["temperature=degC,-40..125", "pressure=bar", "flow,0..", "a, b=m/s", "plain"])
    assert [(one.name, one.unit, one.minimum, one.maximum) for one in found] == [
        ("temperature", "degC", -40.0, 125.0),
        ("pressure", "bar", None, None),
        ("flow", "", 0.0, None),
        ("a, b", "m/s", None, None),
        ("plain", "", None, None),
    ]


@pytest.mark.parametrize("text", ["", "=degC", "t,low..high", "t,nan..1", "n" * 129])
def test_what_names_no_feature_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--feature .* is not NAME"):
        features_of([text])


@pytest.mark.parametrize(
    ("texts", "problem"), [(["a", "b", "a=bar"], "'a' is given twice"), (["t=degC,9..1"], "its range is empty")]
)
def test_features_that_cannot_be_told_apart_or_never_measure_are_refused(texts: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        features_of(texts)


def test_a_rate_in_time_needs_the_streams_and_is_asked_for_before_work(tmp_path: Path) -> None:
    onnx.save(conv1d(), tmp_path / "net.onnx")
    data = save_npz(tmp_path / "held_out.npz", **classified(conv1d(), 120, seed=7))
    line = f"build {tmp_path}/net.onnx --data {data} --trainable * --loss cross-entropy -o {tmp_path}/b".split()
    untimed = CliRunner().invoke(app, [*line, "--false-alarms", "1 per 30 days"])
    assert isinstance(untimed.exception, ConfigError)
    assert "--stream-rate" in untimed.exception.hint
    refused = CliRunner().invoke(app, [*line, "--false-alarms", "1 per 30 days", "--stream-rate", "10 per second"])
    assert isinstance(refused.exception, DataError)
    assert "do not support" in refused.exception.problem
    assert not (tmp_path / "b").exists()


def test_what_is_asked_for_is_kept() -> None:
    wish = wish_of("1 per day", "2 Hz", lowest=True)
    assert wish.false_alarms is not None
    assert wish.stream is not None
    assert (wish.false_alarms.words, wish.stream.per_unit, wish.lowest) == ("1 per day", 2.0, True)

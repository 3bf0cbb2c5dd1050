import subprocess
import sys

import numpy as np
import pytest
from flwr.app import ConfigRecord

from edge_agent.errors import ConfigError
from server_bridge.flower.records import common_metrics, to_record, to_scalars, to_tensors, to_weights


def test_tensors_survive_as_they_are_and_weights_become_float32() -> None:
    tensors = {"b": np.arange(3.0), "a": np.ones((2, 2), np.float32).T, "n": np.array(7)}
    back = to_tensors(to_record(tensors))
    assert list(back) == ["b", "a", "n"]
    assert all((back[name] == tensors[name]).all() and back[name].dtype == tensors[name].dtype for name in tensors)
    assert to_weights(to_record(tensors))["b"].dtype == np.float32


def test_a_config_that_no_command_can_carry_is_refused_by_name() -> None:
    assert to_scalars(ConfigRecord({"a": 1, "b": 0.5, "c": "x", "d": True})) == {"a": 1, "b": 0.5, "c": "x", "d": True}
    with pytest.raises(ConfigError, match="'k' is bytes"):
        to_scalars(ConfigRecord({"k": b"x"}))
    with pytest.raises(ConfigError, match="'k' is list"):
        to_scalars(ConfigRecord({"k": [1]}))


def test_metrics_are_cut_to_what_all_have_in_one_form() -> None:
    assert common_metrics([{"n": 1, "x": 2.0, "l": [1, 2]}, {"n": 2, "l": [3, 4], "y": 1}]) == [
        {"n": 1, "l": [1, 2]},
        {"n": 2, "l": [3, 4]},
    ]
    assert common_metrics([{"n": 1, "l": [1, 2]}, {"n": 2, "l": [3]}]) == [{"n": 1}, {"n": 2}]
    assert common_metrics([{"n": 1}, {"n": [1]}]) == [{}, {}]
    assert common_metrics([]) == []


def test_a_process_imports_without_a_warning_and_flwr_writes_to_structlog_only() -> None:
    program = (
        "import logging, server_bridge.flower.engine, server_bridge.flower.records as records\n"
        "records.prepare_process(); records.prepare_process()\n"
        "print([type(handler).__name__ for handler in logging.getLogger('flwr').handlers])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("['_StructlogHandler']", "")

"""Every number that an operator may set has two ends, and one beyond them is refused by key, value and range."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import edge_agent.config
import server_bridge.config
from edge_agent.config import AgentSettings
from edge_agent.errors import ConfigError
from server_bridge.config import BridgeSettings

AGENT = '[gateway]\nid = "gw1"\nfleet = "line1"\n[source]\nkind = "replay"\npath = "stream.npz"\n'
BRIDGE = '[bridge]\nfleet = "line1"\n'
LOWER, UPPER = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}


def numbers(schema: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every number of a JSON Schema, and where it stands."""
    if isinstance(schema, dict):
        if schema.get("type") in ("number", "integer"):
            yield place, schema
        for key, value in schema.items():
            yield from numbers(value, f"{place}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from numbers(value, place)


@pytest.mark.parametrize("model", [AgentSettings, BridgeSettings])
def test_every_number_has_two_ends(model: type[BaseModel]) -> None:
    found = dict(numbers(model.model_json_schema()))
    assert len(found) > 15
    assert [place for place, schema in found.items() if not (LOWER & schema.keys() and UPPER & schema.keys())] == []


AGENTS, BRIDGES = (edge_agent.config.load_settings, AGENT), (server_bridge.config.load_settings, BRIDGE)


@pytest.mark.parametrize(
    ("program", "section", "key", "value", "ends"),
    [
        (AGENTS, "adaptation", "eta_max", "1e30", "> 0, <= 10"),
        (AGENTS, "adaptation", "eta_max", "nan", "> 0, <= 10"),
        (AGENTS, "adaptation", "judge_within_s", "1e-9", ">= 1, <= 31536000"),
        (AGENTS, "adaptation", "max_duration_s", "inf", ">= 0.1, <= 604800"),
        (AGENTS, "samples", "max_bytes", "99999999999999999999", ">= 1048576, <= 1099511627776"),
        (AGENTS, "source", "rate_hz", "1e-300", ">= 1e-06, <= 1000000"),
        (AGENTS, "monitor", "season_offset_s", "-1e300", ">= -315360000, <= 315360000"),
        (BRIDGES, "strategy", "merge_threshold", "5", ">= 0, <= 2"),
        (BRIDGES, "strategy", "tau", "0.0", ">= 1e-12, <= 10"),
        (BRIDGES, "trigger", "cooldown_s", "1e300", ">= 0, <= 31536000"),
        (BRIDGES, "round", "first_learning_rate", "1e30", "> 0, <= 10"),
        (BRIDGES, "release", "retained_budget_bytes", "1", ">= 1048576, <= 1099511627776"),
    ],
)
def test_a_number_beyond_its_ends_is_named(
    tmp_path: Path, program: tuple[Callable[[Path], object], str], section: str, key: str, value: str, ends: str
) -> None:
    load, text = program
    file = tmp_path / "settings.toml"
    table = "" if section == "source" else f"[{section}]\n"  # the agent's text ends in its source
    file.write_text(f"{text}{table}{key} = {value}\n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    number = float(value) if "." in value or "e" in value or not value.lstrip("-").isdigit() else int(value)
    assert f"[{section}] {key} = {number!r}: " in caught.value.problem
    assert f"(range: {ends})" in caught.value.problem


def test_an_overlay_that_no_look_could_judge_in_time_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    text = AGENT + "[adaptation]\ninterval_s = 7200\n"
    file.write_text(text + "online = true\n")
    with pytest.raises(ConfigError, match="judge_within_s 3600 is below interval_s 7200"):
        edge_agent.config.load_settings(file)
    file.write_text(text)
    assert not edge_agent.config.load_settings(file).adaptation.online, "nothing is followed: an upgrade starts it"

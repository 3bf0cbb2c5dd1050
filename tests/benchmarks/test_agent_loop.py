"""The benchmark runs: the agent's loop loses nothing, and what is compared is there."""

from pathlib import Path

import pytest

from edge_agent.config import load_settings
from tests.benchmarks.agent_loop import Loop, rates, save
from tests.benchmarks.loop_data.made import made
from tests.benchmarks.loop_data.paced import job, measure
from tests.benchmarks.step_data.cases import case

pytestmark = pytest.mark.oracle


def test_a_loop_beside_the_bare_one(tmp_path: Path) -> None:
    place = made(case("mlp"), tmp_path, rows=400, batch=1)
    figures = rates(Loop("mlp", 1, 400, 0.25), place, rounds=1)
    assert [figure.at_least for figure in figures] == [True, True]
    by_cpu, by_clock = (figure.ratio for figure in figures)
    assert 0 < by_cpu < 1
    assert by_clock > 0, "of so few samples: others that have the processor meanwhile count as well"
    settings = load_settings(place.settings)
    taken = measure(settings, {"batch": job(settings, "momentum", "batch")}, phases=1, seconds=1.5, settle_s=2.0)
    assert [len(phase) >= 40 for phases in taken.values() for phase in phases] == [True, True]
    save(figures, tmp_path / "results")
    assert "us of CPU a sample" in (tmp_path / "results" / "agent_loop.json").read_text(encoding="utf-8")

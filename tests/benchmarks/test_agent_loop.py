"""The benchmark runs: the agent's loop loses nothing, and what is compared is there."""

from pathlib import Path

import pytest

from tests.benchmarks.agent_loop import Loop, rates, save
from tests.benchmarks.loop_data.made import made
from tests.benchmarks.loop_data.paced import serve
from tests.benchmarks.step_data.cases import case

pytestmark = pytest.mark.oracle


def test_a_loop_beside_the_bare_one(tmp_path: Path) -> None:
    from edge_agent.model.bundle import load_bundle

    place = made(case("mlp"), tmp_path, rows=400, batch=1)
    figures = rates(Loop("mlp", 1, 400, 0.25), place, rounds=1)
    assert [figure.at_least for figure in figures] == [True, True]
    assert all(0 < figure.ratio < 1 for figure in figures)
    assert len(serve(load_bundle(place.case / "bundle"), 0.5)) == 30
    save(figures, tmp_path / "results")
    assert "us of CPU a sample" in (tmp_path / "results" / "agent_loop.json").read_text(encoding="utf-8")

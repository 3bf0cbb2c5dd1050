import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.benchmarks import cohorting
from tests.benchmarks.cohorting_inputs import FORMS, Form, fleet
from tests.benchmarks.cohorting_results import Results, case_name
from tests.benchmarks.growth_chart import exponent, growth_chart


@pytest.mark.parametrize("form", FORMS)
def test_inputs_are_float32_finite_and_each_clients_own(form: Form) -> None:
    matrix, reference = fleet(form, 3, 5_000)
    assert matrix.dtype == reference.dtype == np.float32
    assert np.isfinite(matrix).all()
    assert len({row.tobytes() for row in (*matrix, reference)}) == 4
    assert (len(np.unique(matrix)) < 256) == (form == "8-bit ties")


def test_the_exponent_is_the_slope_and_the_chart_is_a_picture() -> None:
    points = [(10.0**k, 3e-3 * 10 ** (1.5 * k)) for k in range(1, 5)]
    assert exponent(points) == pytest.approx(1.5)
    chart = ElementTree.fromstring(growth_chart("a < b", "clients", {"one": points, "two": points[:2]}))
    assert len(chart.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert any("size^1.50" in (text.text or "") for text in chart.iter("{http://www.w3.org/2000/svg}text"))


def test_a_child_measures_mapped_weights_without_holding_them(tmp_path: Path) -> None:
    measured = cohorting._measured("gaussian", (120, 100_000), str(tmp_path))
    assert measured["input_mib"] > 46
    assert measured["more_than_input_mib"] < 42  # it begins with none of it in memory


def test_cases_not_run_again_are_kept(tmp_path: Path) -> None:
    results = Results(tmp_path, saved=True)
    known = {"peer_s": 1.0, "peer_clients": 3, "peer_date": "2026-11-30"}
    results.keep_peer(case_name("gaussian", (3, 4)), known)
    results.keep_peer(case_name("8-bit ties", (3, 4)), {**known, "peer_s": 2.0})
    results.keep("time", "first", 1)
    results.keep("time", "second", 2)
    assert results.peer(case_name("gaussian", (3, 4))) == known
    assert results.peer(case_name("gaussian", (3, 5))) is None
    assert json.loads((tmp_path / "cohorting.json").read_text(encoding="utf-8"))["time"] == {"first": 1, "second": 2}


def test_nothing_is_written_unless_asked(tmp_path: Path) -> None:
    results = Results(tmp_path, saved=False)
    results.keep("time", "first", 1)
    results.keep_peer("first", {})
    results.picture("chart.svg", "<svg/>")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.reference
def test_every_part_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in cohorting.ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    cohorting.main(["--quick", "--runs", "1", "--form", "8-bit ties", "--folder", str(tmp_path)])
    printed = capsys.readouterr().out
    for said in ("times less", "peak: the input plus", "growth with parameters", "fed-clma on 4 clients", "mapped"):
        assert said in printed

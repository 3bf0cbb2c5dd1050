from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.benchmarks import cohorting
from tests.benchmarks.cohorting_inputs import FORMS, Form, fleet
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


def test_cases_not_run_again_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cohorting, "RESULTS", tmp_path)
    cohorting._save_peer("gaussian", (3, 4), {"peer_s": 1.0, "peer_clients": 3, "peer_date": "2026-11-30"})
    cohorting._save_peer("8-bit ties", (3, 4), {"peer_s": 2.0, "peer_clients": 3, "peer_date": "2026-11-30"})
    assert cohorting._saved_peer("gaussian", (3, 4)) == {"peer_s": 1.0, "peer_clients": 3, "peer_date": "2026-11-30"}
    assert cohorting._saved_peer("gaussian", (3, 5)) is None

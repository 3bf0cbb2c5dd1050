from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.errors import DataError
from edge_agent.training.job import Lineage
from edge_agent.training.residual import FILES_KEPT, Residuals, decode_residual, encode_residual, read_residual
from tests.training.tiny_bundle import tiny_weights

LINE = Lineage(bundle="a" * 64, training_graph="sgd", adaptation="a1", cohort="root", round=3)


@pytest.mark.parametrize(
    ("changes", "follows"),
    [
        ({"round": 4}, True),
        ({"round": 9}, True),
        ({"round": 3}, False),
        ({"round": 2}, False),
        ({"round": 4, "adaptation": "a2"}, False),
        ({"round": 4, "cohort": "c1"}, False),
        ({"round": 4, "bundle": "b" * 64}, False),
        ({"round": 4, "training_graph": "adam"}, False),
        ({"round": 4, "task": "paint"}, False),
    ],
)
def test_only_a_later_round_of_the_same_line_may_use_it(
    tmp_path: Path, changes: dict[str, object], follows: bool
) -> None:
    (tmp_path / "r").write_bytes(encode_residual(LINE, tiny_weights()))
    later = LINE.model_copy(update=changes)
    assert (read_residual(tmp_path / "r", later) is not None) is follows


def test_it_comes_back_bit_for_bit_and_absent_is_none(tmp_path: Path) -> None:
    line, residual = decode_residual(encode_residual(LINE, tiny_weights(5)))
    assert line == LINE
    assert all((residual[name] == tensor).all() for name, tensor in tiny_weights(5).items())
    assert read_residual(None, LINE) is None
    assert read_residual(tmp_path / "absent", LINE) is None


@given(place=st.integers(0, 10_000), cut=st.booleans(), bit=st.integers(0, 7))
def test_a_damaged_one_is_never_used(place: int, cut: bool, bit: int) -> None:
    payload = bytearray(encode_residual(LINE, tiny_weights()))
    place %= len(payload)
    if cut:
        del payload[place:]
    else:
        payload[place] ^= 1 << bit
    try:
        line, residual = decode_residual(bytes(payload))
    except DataError:
        return
    assert line != LINE or all(np.array_equal(residual[name], tensor) for name, tensor in tiny_weights().items())


def test_one_is_kept_for_each_graph_of_a_bundle_and_the_newest_few(tmp_path: Path) -> None:
    residuals = Residuals(tmp_path / "residuals")
    for number in range(FILES_KEPT + 3):
        line = LINE.model_copy(update={"training_graph": f"g{number}"})
        for turn in (1, 2):
            made = tmp_path / "made"
            made.write_bytes(encode_residual(line.model_copy(update={"round": turn}), tiny_weights(number)))
            residuals.take(made, line)
            assert not made.exists()
        assert decode_residual(residuals.path(line).read_bytes())[0].round == 2
    assert len(list((tmp_path / "residuals").iterdir())) == FILES_KEPT
    residuals.take(tmp_path / "made", LINE)
    assert residuals.path(line).exists()

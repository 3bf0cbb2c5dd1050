import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.drift.id_hashes import id_hashes

IDS = st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=40), min_size=1, max_size=20)


@given(IDS)
def test_an_ids_hash_does_not_depend_on_those_beside_it(ids: list[str]) -> None:
    alone = [int(id_hashes([one])[0]) for one in ids]
    assert id_hashes(ids).tolist() == alone
    assert len(set(alone)) == len(set(ids))


def test_hashes_are_the_same_on_every_machine() -> None:
    found = [f"{value:016x}" for value in id_hashes(["s-1", "sample-1041", "\u00e9\u4e2d\U0001f600"]).tolist()]
    assert found == ["9e1b5f9954b3d9b6", "24c173aff644899c", "a19d67739af4e26e"]
    assert id_hashes([]).tolist() == []


@pytest.mark.parametrize("form", ["{}", "sample-{}", "s-{:012d}", "{:x}/gateway-7", "2026-11-30T10:00:00.{:06d}Z"])
def test_numbered_ids_are_spread_evenly(form: str) -> None:
    # 50,000 ids in 64 cells: chi-square of 63 degrees; 120 is passed with chance 2e-5, and the ids are fixed
    hashes = id_hashes([form.format(number) for number in range(50_000)])
    assert len(set(hashes.tolist())) == 50_000
    for shift in (0, 29, 58):
        counts = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(63)).astype(np.int64), minlength=64)
        expected = 50_000 / 64
        assert float(np.square(counts - expected).sum() / expected) < 120


def test_a_draw_of_the_smallest_is_fair() -> None:
    # the 1,000 smallest of 100,000 numbered ids: in every tenth about 100 of them, deviation 9.5; five deviations
    hashes = id_hashes([f"sample-{number}" for number in range(100_000)])
    tenths = np.argsort(hashes)[:1000] // 10_000
    assert np.abs(np.bincount(tenths, minlength=10) - 100).max() < 48

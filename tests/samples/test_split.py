from hypothesis import given
from hypothesis import strategies as st

from edge_agent.samples.record import Part
from edge_agent.samples.split import part_of

GOLDEN = "ttptttpttttt"


@given(st.text(), st.text(), st.text(), st.floats(0, 0.99))
def test_a_group_is_never_in_two_parts(one: str, other: str, group: str, share: float) -> None:
    parts = {part_of(name, group, holdout=False, proof_share=share) for name in (one, other)}
    assert len(parts) == 1


def test_the_share_is_kept() -> None:
    """10,000 ids, share 0.2: a fair hash stays within 4 standard deviations (160) of 2,000."""
    parts = [part_of(f"{number}-0", None, holdout=False, proof_share=0.2) for number in range(10_000)]
    assert abs(parts.count(Part.PROOF) - 2000) < 160
    assert parts.count(Part.TRAIN) == 10_000 - parts.count(Part.PROOF)


def test_the_split_is_the_same_for_ever() -> None:
    """Golden: another hash would move proof samples into training after an upgrade."""
    parts = [part_of(str(number), None, holdout=False, proof_share=0.3) for number in range(12)]
    assert "".join(part.value[0] for part in parts) == GOLDEN


def test_holdout_wins_and_no_share_means_no_proof() -> None:
    assert part_of("a", "g", holdout=True, proof_share=0.99) is Part.HOLDOUT
    assert all(part_of(str(n), None, holdout=False, proof_share=0.0) is Part.TRAIN for n in range(100))

import numpy as np
import pytest

from edge_agent.drift.finding import Finding, ShiftKind
from edge_agent.drift.unlabelled.kinds import moved_shares, told_apart

_QUIET = Finding(1.0, 10.0, 5.0)
_WARNS = Finding(7.0, 10.0, 5.0, shift="covariate")
_LOUD = Finding(20.0, 10.0, 5.0, shift="covariate")
_LABEL = Finding(20.0, 10.0, 5.0, shift="label")


@pytest.mark.parametrize(
    ("labelled", "label_free", "kind"),
    [
        (_LOUD, _QUIET, "concept"),
        (_LOUD, _WARNS, "unknown"),
        (_LOUD, None, "loss"),
        (_LOUD, _LABEL, "label"),
        (_QUIET, _LOUD, "covariate"),
        (None, _LABEL, "label"),
        (_QUIET, _QUIET, "unknown"),
        (None, None, "unknown"),
    ],
)
def test_both_monitors_together_tell_the_kind(
    labelled: Finding | None, label_free: Finding | None, kind: ShiftKind
) -> None:
    assert told_apart(labelled, label_free) == kind


def test_moved_shares_are_found_and_explain_all() -> None:
    rng = np.random.default_rng(0)
    shares, wanted = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])
    levels = rng.normal(size=(3, 40))
    levels -= shares @ levels

    now, explained = moved_shares(wanted @ levels, levels, shares, 0.0)

    np.testing.assert_allclose(now, wanted, atol=1e-3)
    assert explained > 0.999


def test_a_change_across_the_classes_is_not_explained_by_shares() -> None:
    rng = np.random.default_rng(1)
    shares = np.array([0.5, 0.3, 0.2])
    levels = rng.normal(size=(3, 40))
    levels -= shares @ levels

    _, explained = moved_shares(rng.normal(size=40), levels, shares, 0.0)

    assert explained < 0.3

"""Who moves, who stays, whose drift is unknown."""

import math

import pytest

from server_bridge.cohorts.candidate_choice import CandidateRule, Choice, Score, best_start, choose

LEVELS = {"root": 0.1, "c1": 0.1, "c2": 0.1}


def _scores(**losses: float) -> dict[str, Score]:
    return {cohort: Score(loss, 50, 0.02) for cohort, loss in losses.items()}


@pytest.mark.parametrize(
    ("losses", "verdict", "best"),
    [
        ({"root": 2.0, "c1": 0.15, "c2": 1.8}, "moves", "c1"),
        ({"root": 2.0, "c1": 0.55, "c2": 1.8}, "moves", "c1"),  # three quarters of the rise are gone
        ({"root": 2.0, "c1": 0.65, "c2": 1.8}, "unknown", "c1"),
        ({"root": 0.12, "c1": 0.5}, "stays", "root"),
        ({"root": 0.15, "c1": 0.12}, "moves", "c1"),
        ({"root": 0.21, "c1": 0.3}, "unknown", "root"),
        ({"root": 0.5, "c1": 0.6}, "unknown", "root"),
    ],
)
def test_verdicts(losses: dict[str, float], verdict: str, best: str) -> None:
    choice = choose(CandidateRule(), "root", _scores(**losses), LEVELS)
    assert (choice.verdict, choice.best) == (verdict, best)
    assert f"the model of {best}" in choice.sentence


def test_the_errors_forgive_what_few_samples_cannot_tell() -> None:
    few = {"root": Score(0.6, 8, 0.2), "c1": Score(0.35, 8, 0.15)}
    assert choose(CandidateRule(), "root", few, LEVELS).verdict == "moves"  # within two errors of the level
    many = {"root": Score(0.6, 800, 0.02), "c1": Score(0.35, 800, 0.015)}
    assert choose(CandidateRule(), "root", many, LEVELS).verdict == "unknown"  # surely too bad
    assert choose(CandidateRule(), "root", {"root": Score(0.22, 20, 0.13)}, LEVELS).verdict == "stays"
    assert choose(CandidateRule(), "root", {"root": Score(0.26, 20, 0.13)}, LEVELS).verdict == "unknown"


def test_without_a_level_or_on_fewer_samples_than_the_least_nobody_moves() -> None:
    assert choose(CandidateRule(), "root", _scores(root=2.0, c1=0.1), {}).verdict == "unknown"
    four = {"root": Score(2.0, 4, 0.1), "c1": Score(0.1, 4, 0.01)}
    assert choose(CandidateRule(), "root", four, LEVELS).verdict == "unknown"
    assert "no level is known" in choose(CandidateRule(), "root", _scores(root=2.0, c1=0.1), {}).sentence


def test_two_models_alike_leave_the_client_where_it_is() -> None:
    choice = choose(CandidateRule(), "c1", _scores(c1=0.1, root=0.1), LEVELS)
    assert (choice.verdict, choice.best) == ("stays", "c1")
    assert math.isfinite(choice.threshold)
    assert choice.to_json()["losses"] == {"c1": 0.1, "root": 0.1}


def _told(own: Score, other: Score, cohort: str = "c1") -> Choice:
    return choose(CandidateRule(), "root", {"root": own, cohort: other}, LEVELS)


@pytest.mark.parametrize(
    ("choices", "best"),
    [
        ([_told(Score(3.0, 50, 0.2), Score(2.0, 50, 0.2))], "c1"),
        ([_told(Score(2.0, 50, 0.2), Score(3.0, 50, 0.2))], "root"),
        ([_told(Score(3.0, 50, 0.2), Score(2.8, 50, 0.2))], "root"),  # within the error of the difference
        ([_told(Score(3.0, 50, 0.2), Score(2.8, 50, 0.2))] * 4, "c1"),  # of four together it is not
        ([_told(Score(3.0, 50, 0.1), Score(2.0, 50, 0.1)), _told(Score(3.0, 150, 0.1), Score(3.5, 150, 0.1))], "root"),
        ([_told(Score(3.0, 4, 0.1), Score(1.0, 4, 0.1))], "root"),  # too few samples
        ([_told(Score(3.0, 50, 0.1), Score(1.0, 50, 0.1), c) for c in ("c1", "c2")], "root"),  # nothing in common
    ],
)
def test_those_who_leave_one_cohort_begin_together_from_what_is_clearly_best(choices: list[Choice], best: str) -> None:
    assert best_start(CandidateRule(), choices) == best


@pytest.mark.parametrize(("chance", "best"), [(1.0, "root"), (1.5, "c2"), (math.inf, "c2")])
def test_where_all_are_worse_than_chance_the_root_is_begun_from(chance: float, best: str) -> None:
    scores = {"c1": Score(3.0, 50, 0.1), "c2": Score(1.4, 50, 0.1), "root": Score(3.5, 50, 0.1)}
    choice = choose(CandidateRule(), "c1", scores, {})
    assert best_start(CandidateRule(chance=chance), [choice]) == best
    assert best_start(CandidateRule(chance=1.0), [choose(CandidateRule(), "c1", _only(scores, "c1", "c2"), {})]) == "c1"


def _only(scores: dict[str, Score], *cohorts: str) -> dict[str, Score]:
    return {cohort: scores[cohort] for cohort in cohorts}

import json

import pytest
from flwr.app import MetricRecord

from server_bridge.flower.levels import LossLevels
from server_bridge.flower.updates import ClientUpdate


def _update(client: int, cohort: str, loss: float | None, examples: float = 10.0) -> ClientUpdate:
    return ClientUpdate(client, cohort, {}, {}, examples, False, loss, None, MetricRecord())


def test_a_level_is_the_mean_by_examples_of_those_that_are_at_home() -> None:
    levels = LossLevels()
    updates = [_update(1, "root", 0.2, 30), _update(2, "root", 0.6), _update(3, "root", 9.0), _update(4, "c1", None)]
    levels.learn(updates, {3}, set())
    assert levels.by_cohort == {"root": 0.3}


@pytest.mark.parametrize("members", [2, 6])
def test_one_members_claim_does_not_raise_a_level_without_end(members: int) -> None:
    levels = LossLevels()
    honest = [_update(client, "root", 0.2) for client in range(1, members)]
    levels.learn([*honest, _update(members, "root", 3e38, 5000)], set(), set())
    assert 0.2 <= levels.by_cohort["root"] <= 0.8


def test_the_first_round_of_an_adaptation_counts_and_the_latest_of_a_cohort_that_began_in_it() -> None:
    levels = LossLevels()
    for loss in (0.5, 0.4, 0.3):
        levels.learn([_update(1, "root", loss), _update(2, "c1", loss)], set(), {"c1"})
    assert levels.by_cohort == {"root": 0.5, "c1": 0.3}
    levels.end_adaptation()
    for loss in (0.7, 0.1):
        levels.learn([_update(1, "root", loss), _update(2, "c1", loss)], set(), set())
    assert levels.by_cohort == {"root": 0.7, "c1": 0.7}
    levels.forget(["root"])
    assert levels.by_cohort == {"root": 0.7}


def test_levels_come_back_with_what_they_were_told() -> None:
    levels, again = LossLevels(), LossLevels()
    levels.learn([_update(1, "root", 0.5)], set(), set())
    again.restore(json.loads(json.dumps(levels.export())))
    for each in (levels, again):
        each.learn([_update(1, "root", 0.1)], set(), set())
        assert each.by_cohort == {"root": 0.5}

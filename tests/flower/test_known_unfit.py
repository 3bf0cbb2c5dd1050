from flwr.app import MetricRecord

from server_bridge.cohorts.candidate_choice import CandidateRule
from server_bridge.cohorts.membership import ROOT
from server_bridge.cohorts.selectors import AllParams
from server_bridge.flower.known import KnownConcepts
from server_bridge.flower.updates import ClientUpdate


def update(client: int, loss: float | None, after: float | None) -> ClientUpdate:
    return ClientUpdate(client, ROOT, {}, {}, 60.0, False, loss, None, MetricRecord(), after)


def known() -> KnownConcepts:
    return KnownConcepts(None, 0, CandidateRule(), AllParams())


def test_weights_are_no_good_where_training_took_nearly_all_of_the_loss_away_and_nobody_tells_their_level() -> None:
    """The only member that did not drift may sit the round out: its cohort must stay barred all the same."""
    assert known().unfit([update(1, 11.4, 0.1)]) == {ROOT}
    assert known().unfit([update(1, 0.4, 0.15), update(2, 1.0, 0.5)]) == set()


def test_nothing_is_said_without_a_loss_or_where_neither_level_nor_training_tells() -> None:
    assert known().unfit([update(1, None, 0.1), update(2, 11.4, None)]) == set()


def test_what_other_members_tell_goes_before_what_training_made() -> None:
    concepts = known()
    concepts.learn([update(3, 2.0, 0.1)], set())
    assert concepts.unfit([update(1, 2.05, 0.1)]) == set()
    assert concepts.unfit([update(1, 5.0, 4.9)]) == {ROOT}

"""A drift that returns: its clients go to the cohort that knows it, by weights alone or by evaluation."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from server_bridge.cohorts.candidate_choice import CandidateRule
from server_bridge.cohorts.cohorter import ClientId, CohortAssignment, CohortContext
from server_bridge.cohorts.cosine import CosineCohorter
from server_bridge.cohorts.recognition import RecognitionRule
from server_bridge.cohorts.returns import ReturnRule
from server_bridge.flower.clma import CLMA
from server_bridge.flower.state import decode_state, encode_state
from tests.flower.by_hand import A, B, Client, Flags, Model, Rounds, close, flags, fleet_of, options
from tests.flower.memory_fleet import Metrics

FIRST, LATER = [1, 2, 3], [8, 9]
CALM = [5, 6, 7]


def _recurring(strategy: Callable[[Flags], CLMA]) -> Rounds:
    """Family a drifts in round 1; 8 and 9 drift the same way in round 4."""
    rounds = Rounds(strategy(flags(r1=FIRST, r4=LATER)), fleet_of(a=FIRST, c=CALM + LATER))
    rounds.run().run()
    rounds.strategy.end_adaptation()
    return rounds.run()


def _drift(rounds: Rounds) -> None:
    for node in LATER:
        rounds.clients[node].change = rounds.clients[FIRST[0]].change


def _weights_alone(flagged: Flags) -> CLMA:
    return CLMA(flagged=flagged, recognition=RecognitionRule(), **options())


def test_by_weights_alone_they_join_the_cohort_whose_weights_they_do_not_change() -> None:
    rounds = _recurring(_weights_alone)
    _drift(rounds)
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": FIRST + LATER}
    np.testing.assert_allclose(rounds.strategy.registry.params("c1")["w"], rounds.mean(FIRST)["w"], atol=1e-5)
    moves = rounds.strategy.registry.round_moves
    assert [(m.client, m.source, m.target, m.reason) for m in moves] == [(n, "root", "c1", "recognised") for n in LATER]
    facts = moves[0].facts or {}
    assert facts["similarity"] >= facts["threshold"]
    assert "points to c1" in facts["sentence"]
    assert (rounds.metrics["clma-num-recognised"], rounds.metrics["clma-num-new-cohorts"]) == (2, 0)
    assert rounds.strategy.regrouped >= set(LATER)
    rounds.run()
    assert {rounds.cohorts[node] for node in FIRST + LATER} == {"c1"}


class _Pairs(CosineCohorter):
    """Takes two at a time for a family."""

    def cohort(
        self,
        ids: Sequence[ClientId],
        matrix: NDArray[Any],
        reference: NDArray[Any],
        *,
        context: CohortContext | None = None,
    ) -> CohortAssignment:
        ordered = sorted(ids)
        return CohortAssignment(assignments={client: ordered.index(client) // 2 for client in ids})


@pytest.mark.parametrize(("later", "known"), [([8, 9], True), ([6, 7, 8, 9], False)])
def test_groups_that_would_go_the_same_way_are_as_many_as_they_are_together(later: list[int], known: bool) -> None:
    """The change points to c1 with some 0.25: enough for two, too little for four, be they one group or two."""
    strategy = CLMA(cohorter=_Pairs(), flagged=flags(r1=[1, 2], r4=later), recognition=RecognitionRule(), **options())
    rounds = Rounds(strategy, fleet_of(a=[1, 2], c=[3, 4, 5, 6, 7, 8, 9]))
    rounds.run().run()
    rounds.strategy.end_adaptation()
    rounds.run()
    for node in later:
        rounds.clients[node].change = {name: 0.31 * A[name] + 0.95 * B[name] for name in A}
    rounds.run()
    assert (rounds.groups["c1"] == [1, 2, *later]) is known
    assert rounds.metrics["clma-num-recognised"] == (len(later) if known else 0)
    similarities = [(m.facts or {})["similarity"] for m in rounds.strategy.registry.round_moves if m.facts]
    assert not known or all(0.2 < similarity < 0.3 for similarity in similarities)


def test_without_the_rule_they_get_a_cohort_of_their_own() -> None:
    rounds = _recurring(lambda flagged: CLMA(flagged=flagged, **options()))
    _drift(rounds)
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": FIRST, "c2": LATER}
    assert "clma-num-recognised" not in rounds.metrics


@pytest.mark.parametrize("reliable", [True, False])
def test_another_drift_is_not_recognised_and_a_return_to_the_root_is_if_it_is_reliable(reliable: bool) -> None:
    rounds = _recurring(_weights_alone)
    for node in LATER:
        rounds.clients[node].change = B
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": FIRST, "c2": LATER}
    back = Rounds(_weights_alone(flags(r1=FIRST, r4=[1])), fleet_of(a=FIRST, c=CALM)).run().run().run()
    away = back.clients[1].change
    back.clients[1].change = {name: -tensor for name, tensor in away.items()}
    if reliable:
        back.clients[1].metrics["clma-split-half"] = 1.0
    back.run()
    assert back.groups == ({"root": [1, *CALM], "c1": [2, 3]} if reliable else {"root": CALM, "c1": [2, 3], "c2": [1]})


def _says(rounds: Rounds, **losses: float) -> None:
    """What clients report of the weights that they are sent."""
    for name, loss in losses.items():
        rounds.clients[int(name[1:])].metrics["clma-loss"] = loss


def _on_trial() -> Rounds:
    """8 and 9 were recognised as c1's by their weights; their former model had a loss of 3, c1 has 0.5 on its own."""
    rounds = _recurring(_weights_alone)
    _drift(rounds)
    _says(rounds, c8=3.0, c9=3.0)
    rounds.run()
    assert rounds.groups["c1"] == FIRST + LATER
    return rounds


def test_whom_the_next_loss_refutes_leaves_again_and_counts_nowhere_else() -> None:
    rounds = _on_trial()
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": FIRST, "c2": LATER}
    np.testing.assert_allclose(rounds.strategy.registry.params("c1")["w"], rounds.mean(FIRST)["w"], atol=1e-5)
    np.testing.assert_allclose(rounds.strategy.registry.params("c2")["w"], rounds.mean(LATER)["w"], atol=1e-5)
    moves = rounds.strategy.registry.round_moves
    assert [(m.client, m.source, m.target, m.reason) for m in moves] == [(n, "c1", "c2", "drifted") for n in LATER]
    facts = moves[0].facts or {}
    assert (facts["rule"], facts["loss"], facts["former_loss"]) == ("refuted", 3.0, 3.0)
    assert "looked like that of c1" in facts["sentence"]
    assert rounds.run().groups == {"root": CALM, "c1": FIRST, "c2": LATER}


@pytest.mark.parametrize("flagged_again", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_wrong_proposal_costs_a_round_and_not_what_they_had_learnt(flagged_again: bool, killed: bool) -> None:
    rounds = _on_trial()
    had = rounds.mean(LATER)["w"]
    _says(rounds, c8=4.0, c9=3.5)
    if flagged_again or killed:
        state = decode_state(encode_state(rounds.strategy.export_state()))
        rounds.strategy = _weights_alone(flags(r5=LATER) if flagged_again else flags())
        rounds.strategy.import_state(state)
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": FIRST, "c2": LATER}
    np.testing.assert_allclose(rounds.strategy.registry.params("c2")["w"], had, atol=1e-5)
    assert not rounds.strategy.export_state().group("trial/")
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": FIRST, "c2": LATER}
    np.testing.assert_allclose(rounds.strategy.registry.params("c2")["w"], rounds.mean(LATER)["w"], atol=1e-5)


def test_nothing_is_guessed_twice_in_an_adaptation() -> None:
    rounds = _on_trial()
    state = decode_state(encode_state(rounds.strategy.export_state()))
    rounds.strategy = _weights_alone(flags(r5=LATER, r6=LATER))
    rounds.strategy.import_state(state)
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": FIRST, "c2": LATER}
    _drift(rounds)  # towards c1 once more
    state = decode_state(encode_state(rounds.strategy.export_state()))
    rounds.strategy = _weights_alone(flags(r6=LATER))
    rounds.strategy.import_state(state)
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": FIRST, "c3": LATER}


def test_each_is_judged_by_itself_and_once() -> None:
    rounds = _on_trial()
    _says(rounds, c9=0.8)
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": [*FIRST, 9], "c2": [8]}
    _says(rounds, c9=3.0)
    assert rounds.run().groups["c1"] == [*FIRST, 9]


def test_who_is_away_stays_on_trial_also_when_the_bridge_is_killed() -> None:
    rounds = _on_trial()
    rounds.clients[8].away = True
    _says(rounds, c9=0.8)
    rounds.run()
    state = decode_state(encode_state(rounds.strategy.export_state()))
    rounds.strategy = _weights_alone(flags())
    rounds.strategy.import_state(state)
    rounds.clients[8].away = False
    assert rounds.run().groups == {"root": CALM, "c1": [*FIRST, 9], "c2": [8]}


def test_an_adaptations_end_acquits() -> None:
    rounds = _on_trial()
    rounds.strategy.end_adaptation()
    assert rounds.run().groups["c1"] == FIRST + LATER


def _judge(rounds: Rounds, cohort: str) -> Callable[[Model], Metrics]:
    """Whoever judges so lives in the concept of a cohort: its present weights have a loss of 0.5, all others 2."""
    right = rounds.strategy.registry.params(cohort)["w"]
    return lambda weights: {"loss": 0.5 if np.allclose(weights["w"], right) else 2.0}


def _candidates(flagged: Flags) -> CLMA:
    return CLMA(flagged=flagged, candidates=2, **options())


def test_by_evaluation_they_move_before_they_train_and_their_training_counts() -> None:
    rounds = _recurring(_candidates)
    for node in LATER:
        rounds.clients[node].judge = _judge(rounds, "c1")
    rounds.run()
    assert rounds.evaluations == 2 * len(LATER)
    assert {rounds.cohorts[node] for node in LATER} == {"c1"}
    assert rounds.groups == {"root": CALM, "c1": FIRST + LATER}
    np.testing.assert_allclose(rounds.strategy.registry.params("c1")["w"], rounds.mean(FIRST + LATER)["w"], atol=1e-5)
    facts = rounds.strategy.registry.round_moves[0].facts or {}
    assert facts["losses"] == {"root": 2.0, "c1": 0.5}
    assert "its own 2.00" in facts["sentence"]
    assert (rounds.metrics["clma-num-drifted"], rounds.metrics["clma-num-recognised"]) == (2, 2)


def test_a_false_flag_leaves_its_client_where_it_is_and_an_unknown_drift_is_regrouped() -> None:
    rounds = _recurring(_candidates)
    rounds.clients[8].judge = _judge(rounds, "root")
    rounds.clients[9].judge = lambda _: {"loss": 3.0}
    rounds.clients[9].change = B
    rounds.run()
    assert rounds.groups == {"root": [*CALM, 8], "c1": FIRST, "c2": [9]}
    assert rounds.metrics["clma-num-drifted"] == 1


def test_what_one_member_claims_does_not_make_others_drifts_look_false() -> None:
    rounds = Rounds(_candidates(flags(r1=FIRST, r4=LATER)), fleet_of(a=FIRST, c=CALM + LATER))
    rounds.clients[CALM[0]].metrics["clma-loss"] = 1e30
    rounds.run().run()
    rounds.strategy.end_adaptation()
    rounds.run()
    for node in LATER:
        rounds.clients[node].judge = lambda _: {"loss": 3.0}
        rounds.clients[node].change = B
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": FIRST, "c2": LATER}


@pytest.mark.parametrize("answer", [{}, {"accuracy": 0.5}, {"loss": 0.5, "num-examples": 2}])
def test_without_usable_answers_the_drift_is_regrouped_as_ever(answer: Metrics) -> None:
    rounds = _recurring(_candidates)
    for node in LATER:
        rounds.clients[node].judge = lambda _: answer
    _drift(rounds)
    rounds.run()
    assert rounds.groups == {"root": CALM, "c1": FIRST, "c2": LATER}


def _best_start(flagged: Flags) -> CLMA:
    return CLMA(flagged=flagged, candidates=2, best_start=True, **options())


def _prefers(rounds: Rounds, cohort: str) -> None:
    """LATER drift in a way that nobody knows; a cohort's model is less bad for them than their own."""
    right = rounds.strategy.registry.params(cohort)["w"]
    for node in LATER:
        rounds.clients[node].judge = lambda weights: {
            "loss": 2.0 if np.allclose(weights["w"], right) else 3.0,
            "loss-error": 0.1,
        }
        rounds.clients[node].change = B


@pytest.mark.parametrize("start", ["c1", "root"])
def test_an_unknown_drift_is_learnt_from_the_model_that_is_least_bad_for_it(start: str) -> None:
    rounds = _recurring(_best_start)
    _prefers(rounds, start)
    models = {cohort: dict(rounds.strategy.registry.params(cohort)) for cohort in ("root", "c1")}
    rounds.run()
    for node in LATER:
        assert rounds.cohorts[node] == start
        close(rounds.sent[node], models[start])
    assert rounds.groups == {"root": CALM, "c1": FIRST, "c2": LATER}
    close(rounds.strategy.registry.params("c2"), rounds.mean(LATER))
    close(rounds.strategy.registry.params("c1"), rounds.mean(FIRST))
    close(rounds.strategy.registry.params("root"), rounds.mean(CALM))
    assert {(m.source, m.target, m.reason) for m in rounds.strategy.registry.round_moves} == {("root", "c2", "drifted")}
    rounds.run()
    assert {rounds.cohorts[node] for node in LATER} == {"c2"}


def test_who_begins_from_another_cohorts_weights_does_not_go_back_to_its_own() -> None:
    rounds = _recurring(
        lambda flagged: CLMA(flagged=flagged, candidates=2, best_start=True, return_rule=ReturnRule(), **options())
    )
    _prefers(rounds, "c1")
    for node in LATER:
        rounds.clients[node].metrics["clma-loss"] = 2.0
    rounds.run()
    assert rounds.groups["c2"] == LATER
    assert ["c2", ["c1", "root"]] in rounds.strategy.export_state().document["splits"]["barred"]


def test_the_best_start_needs_candidates() -> None:
    with pytest.raises(ValueError, match="needs candidates"):
        CLMA(flagged=flags(), best_start=True)


def test_only_the_flagged_are_asked_and_about_no_more_cohorts_than_allowed() -> None:
    strategy = CLMA(flagged=flags(r1=[1], r2=[2], r3=[3], r4=[4]), candidates=1, **options())
    clients = {n: Client({k: v * n for k, v in B.items()}, judge=lambda _: {"loss": 9.0}) for n in range(1, 7)}
    rounds = Rounds(strategy, clients)
    asked = [rounds.run().evaluations for _ in range(5)]
    assert asked == [0, 2, 4, 6, 6]


@pytest.mark.parametrize(("chance", "asked", "start"), [(math.inf, 2, "c2"), (5.0, 3, "c2"), (1.5, 3, "root")])
def test_the_root_is_evaluated_too_where_chance_may_send_clients_there(chance: float, asked: int, start: str) -> None:
    node = FIRST[0]
    strategy = CLMA(
        flagged=flags(r1=FIRST, r2=[node], r3=[node]),
        candidates=1,
        candidate_rule=CandidateRule(chance=chance),
        best_start=True,
        **options(),
    )
    rounds = Rounds(strategy, fleet_of(a=FIRST, c=CALM)).run()
    rounds.clients[node].change = B
    rounds.run()
    before = rounds.evaluations
    rounds.clients[node].judge = lambda _: {"loss": 3.0, "loss-error": 0.1}
    rounds.run()
    assert (rounds.evaluations - before, rounds.cohorts[node]) == (asked, start)


def test_candidates_need_to_know_who_is_flagged_before_the_round() -> None:
    with pytest.raises(ValueError, match="need flagged"):
        CLMA(candidates=2)
    with pytest.raises(ValueError, match="negative"):
        CLMA(candidates=-1, flagged=flags())


@pytest.mark.parametrize("strategy", [_candidates, _best_start])
def test_killed_before_the_round_ends_it_asks_again_and_comes_to_the_same(strategy: Callable[[Flags], CLMA]) -> None:
    states = []
    for killed in (False, True):
        rounds = _recurring(strategy)
        before = encode_state(rounds.strategy.export_state())
        if strategy is _best_start:
            _prefers(rounds, "c1")
        else:
            for node in LATER:
                rounds.clients[node].judge = _judge(rounds, "c1")
        rounds.run()
        if killed:
            rounds.strategy = strategy(flags(r1=FIRST, r4=LATER))
            rounds.strategy.import_state(decode_state(before))
            rounds.number -= 1
            rounds.run()
        states.append(encode_state(rounds.strategy.export_state()))
    assert states[0] == states[1]

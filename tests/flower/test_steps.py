import numpy as np
import pytest

from server_bridge.aggregation.opposition import OppositionRule
from server_bridge.flower.clma import CLMA
from server_bridge.flower.defence import Defence
from server_bridge.flower.state import decode_state, encode_state
from server_bridge.flower.steps import StepRule
from server_bridge.flower.strategies import StrategyName, StrategySettings, make_strategy
from tests.flower.by_hand import Client, Rounds, close, fleet_of, options
from tests.flower.memory_fleet import direction, initial_weights


def _tell(clients: dict[int, Client], *losses: float) -> None:
    for client, loss in zip(clients.values(), losses, strict=True):
        client.metrics["clma-loss"] = loss


def _rounds(count: int = 3) -> tuple[Rounds, dict[int, Client]]:
    clients = fleet_of(c=range(1, count + 1))
    return Rounds(CLMA(step_rule=StepRule(), **options()), clients), clients


def test_a_step_that_most_members_find_worse_is_taken_back_and_the_next_is_half_as_long() -> None:
    rounds, clients = _rounds()
    begin = initial_weights()
    _tell(clients, 0.5, 0.5, 0.5)
    close(rounds.run().strategy.registry.params("root"), rounds.mean([1, 2, 3]))
    _tell(clients, 0.6, 0.6, 0.1)
    rounds.run()
    close(rounds.strategy.registry.params("root"), begin)
    assert rounds.metrics["clma-num-steps-back"] == 1
    assert {node: why.reason for node, why in rounds.strategy.noted.items()} == dict.fromkeys((1, 2, 3), "step-back")
    _tell(clients, 0.5, 0.5, 0.5)
    rounds.run()
    mean = rounds.mean([1, 2, 3])
    close(rounds.strategy.registry.params("root"), {n: (begin[n] + mean[n]) / 2 for n in begin})
    assert "clma-num-steps-back" not in rounds.metrics
    _tell(clients, 0.4, 0.4, 0.4)
    close(rounds.run().strategy.registry.params("root"), rounds.mean([1, 2, 3]))


@pytest.mark.parametrize(
    "told",
    [
        (0.9, 0.9, 0.1, 0.1),  # half of them are no majority
        (0.54, 0.54, 0.54, 0.54),  # a tenth of 0.5 is what losses vary by
        (0.1, 0.1, 0.1, 9.0),
    ],
)
def test_a_step_that_most_members_do_not_find_worse_stands(told: tuple[float, ...]) -> None:
    rounds, clients = _rounds(4)
    rounds.run()
    _tell(clients, *told)
    close(rounds.run().strategy.registry.params("root"), rounds.mean([1, 2, 3, 4]))


def test_who_did_not_tell_of_the_weights_before_does_not_find_them_better() -> None:
    rounds, clients = _rounds(4)
    clients[3].away = clients[4].away = True
    rounds.run()
    clients[3].away = clients[4].away = False
    _tell(clients, 0.9, 0.9, 0.9, 0.9)
    close(rounds.run().strategy.registry.params("root"), rounds.mean([1, 2, 3, 4]))


@pytest.mark.parametrize("first_back", [False, True])
def test_who_was_away_for_a_round_goes_by_what_it_told_before(first_back: bool) -> None:
    rounds, clients = _rounds(5)
    rounds.run()
    if first_back:
        _tell(clients, 0.9, 0.9, 0.9, 0.9, 0.9)
        rounds.run()
    _tell(clients, 0.4, 0.4, 0.4, 0.4, 0.4)
    for away in (True, False):
        best = rounds.sent[1] if not away else {}
        clients[3].away = clients[4].away = clients[5].away = away
        if not away:
            _tell(clients, 0.9, 0.1, 0.9, 0.9, 0.9)
        rounds.run()
    close(rounds.strategy.registry.params("root"), best)


def test_many_little_steps_for_the_worse_are_one_large_one() -> None:
    rounds, clients = _rounds()
    rounds.run()
    for loss in (0.54, 0.54):
        _tell(clients, loss, loss, loss)
        rounds.run()
    _tell(clients, 0.58, 0.58, 0.58)
    rounds.run()
    close(rounds.strategy.registry.params("root"), initial_weights())


@pytest.mark.parametrize("rise", [0.03, 0.06, 0.3])
def test_losses_that_rise_by_themselves_in_every_round_cost_a_round_and_no_more(rise: float) -> None:
    rounds, clients = _rounds()
    back = []
    for number in range(10):
        _tell(clients, *[0.5 + rise * number] * 3)
        rounds.run()
        back.append(rounds.metrics.get("clma-num-steps-back", 0))
        if number == 4:  # what is known of it is known over a restart
            again = CLMA(step_rule=StepRule(), **options())
            again.import_state(decode_state(encode_state(rounds.strategy.export_state())))
            rounds.strategy = again
    assert sum(back) == 1


def test_who_rose_by_itself_may_still_be_made_worse() -> None:
    rounds, clients = _rounds()
    for losses in (0.5, 0.7, 0.6):  # of the weights at the beginning 0.5, then 0.6
        _tell(clients, losses, losses, losses)
        rounds.run()
    _tell(clients, 0.8, 0.8, 0.8)
    close(rounds.run().strategy.registry.params("root"), initial_weights())


def test_a_rise_that_has_ended_is_not_allowed_for_any_more() -> None:
    rounds, clients = _rounds()
    for losses in (0.5, 1.0, 1.0, 1.0):
        _tell(clients, losses, losses, losses)
        rounds.run()
    best = rounds.sent[1]
    _tell(clients, 1.2, 1.2, 1.2)
    close(rounds.run().strategy.registry.params("root"), best)


def test_what_was_taken_back_is_known_over_a_restart_and_forgotten_with_the_adaptation() -> None:
    rounds, clients = _rounds()
    rounds.run()
    _tell(clients, 0.9, 0.9, 0.9)
    again = CLMA(step_rule=StepRule(), **options())
    again.import_state(decode_state(encode_state(rounds.strategy.export_state())))
    rounds.strategy = again
    close(rounds.run().strategy.registry.params("root"), initial_weights())
    again.end_adaptation()
    close(rounds.run().strategy.registry.params("root"), rounds.mean([1, 2, 3]))


def test_without_a_rule_or_without_losses_nothing_is_taken_back() -> None:
    silent, clients = _rounds()
    for client in clients.values():
        del client.metrics["clma-loss"]
    for rounds in (silent, Rounds(CLMA(**options()), fleet_of(c=[1, 2, 3]))):
        rounds.run()
        if rounds is not silent:
            _tell(rounds.clients, 9.0, 9.0, 9.0)
        close(rounds.run().strategy.registry.params("root"), rounds.mean([1, 2, 3]))


def test_the_default_strategy_parts_who_opposes_only_after_its_cohort_was_harmed() -> None:
    clients = fleet_of(a=[1, 2, 3])
    for client in clients.values():
        client.noise = 0.1
    clients[2].change = {name: -tensor for name, tensor in direction(1).items()}
    strategy = CLMA(defence=Defence(opposition=OppositionRule(), unharmed=False), step_rule=StepRule(), **options())
    rounds = Rounds(strategy, clients).run()
    assert rounds.groups == {"root": [1, 2, 3]}
    _tell(clients, 0.9, 0.1, 0.9)
    rounds.run()
    assert rounds.groups == {"root": [1, 3], "c1": [2]}
    assert strategy.noted[2].reason == "opposing-update"
    close(strategy.registry.params("root"), initial_weights())


@pytest.mark.parametrize(("name", "back"), [("clma", True), ("clma-paper", False)])
def test_the_default_takes_back_and_the_paper_does_not(name: StrategyName, back: bool) -> None:
    strategy = make_strategy(StrategySettings(name=name))
    assert isinstance(strategy, CLMA)
    rounds = Rounds(strategy, fleet_of(c=[1, 2, 3])).run()
    _tell(rounds.clients, 9.0, 9.0, 9.0)
    rounds.run()
    gone = all(np.array_equal(strategy.registry.params("root")[n], t) for n, t in initial_weights().items())
    assert gone is back

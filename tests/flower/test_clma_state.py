import pytest
from flwr.app import ConfigRecord

from edge_agent.errors import DataError
from server_bridge.flower.clma import CLMA
from server_bridge.flower.records import to_record
from server_bridge.flower.state import StrategyState, decode_state, encode_state
from tests.flower.by_hand import CALM, Client, Rounds, close, flags, fleet_of, grid_of, options
from tests.flower.memory_fleet import initial_weights


def test_a_late_joiner_begins_in_the_root_and_a_leaver_keeps_its_place() -> None:
    rounds = Rounds(CLMA(flagged=flags(r1=[1, 2]), **options()), fleet_of(a=[1, 2], c=[3])).run()
    gone = rounds.clients.pop(2)
    rounds.clients[7] = Client(CALM)
    rounds.run()
    assert rounds.groups == {"root": [3, 7], "c1": [1, 2]}
    rounds.clients[2] = gone
    assert rounds.run().cohorts[2] == "c1"


def test_losses_are_forgotten_at_the_adaptations_end() -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    strategy = CLMA(loss_gamma=0.1, flagged=flags(r1=[1, 2]), **options())
    rounds = Rounds(strategy, clients).run()
    strategy.end_adaptation()
    assert strategy.regrouped == set()
    clients[1].metrics["clma-loss"] = 5.0
    assert rounds.run().groups == {"root": [3], "c1": [1, 2]}
    clients[1].metrics["clma-loss"] = 6.0
    assert rounds.run().groups == {"root": [3], "c1": [2], "c2": [1]}


@pytest.mark.parametrize("killed_after", [0, 1, 2, 3])
@pytest.mark.parametrize("in_mid_round", [False, True])
def test_killed_in_any_round_it_goes_on_as_if_nothing_had_been(killed_after: int, in_mid_round: bool) -> None:
    def make() -> CLMA:
        return CLMA(flagged=flags(r1=[1, 2, 3], r3=[4]), loss_gamma=0.1, **options())

    clients = fleet_of(a=[1, 2], b=[3, 4], c=[5])
    clients[5].metrics["clma-loss"] = 0.1
    whole = Rounds(make(), clients)
    part = Rounds(make(), clients)
    for number in range(1, 5):
        if number == killed_after + 1:
            state = decode_state(encode_state(part.strategy.export_state()))
            if in_mid_round:
                part.strategy.configure_train(number, to_record(initial_weights()), ConfigRecord(), grid_of(clients))
            part.strategy = make()
            part.strategy.import_state(state)
        if number == 4:
            clients[1].metrics["clma-loss"] = clients[5].metrics["clma-loss"] = 3.0
        whole.run()
        part.run()
    assert encode_state(part.strategy.export_state()) == encode_state(whole.strategy.export_state())
    assert whole.strategy.registry.cohort_of(5) != "root"


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(DataError, match="not CLMA's"):
        CLMA().import_state(StrategyState(document={"registry": {}}))


def test_membership_can_be_placed_from_the_releases_in_force() -> None:
    strategy = CLMA(**options())
    strategy.place({1: "c5", 2: "root"}, {"root": initial_weights(), "c5": initial_weights(1)})
    rounds = Rounds(strategy, fleet_of(c=[1, 2])).run()
    close(rounds.sent[1], initial_weights(1))
    assert rounds.groups == {"root": [2], "c5": [1]}
    with pytest.raises(DataError, match="c9"):
        strategy.place({1: "c9"}, {})

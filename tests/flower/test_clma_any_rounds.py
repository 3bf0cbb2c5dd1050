"""Whatever is flagged, away, noisy or killed: nobody is lost or in two cohorts, and no id comes back."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.wire.tensors import Weights
from server_bridge.aggregation.lengths import LengthRule
from server_bridge.aggregation.opposition import OppositionRule
from server_bridge.cohorts.recognition import RecognitionRule
from server_bridge.cohorts.returns import ReturnRule
from server_bridge.flower.clma import CLMA
from server_bridge.flower.defence import Defence
from server_bridge.flower.state import decode_state, encode_state
from server_bridge.flower.steps import StepRule
from tests.flower.by_hand import Metrics, Rounds, fleet_of, options

CLIENTS = (1, 2, 3, 4, 5, 6, 7)
SOME = st.frozensets(st.sampled_from(CLIENTS), max_size=len(CLIENTS))


@dataclass(frozen=True)
class Round:
    flagged: frozenset[int]
    away: frozenset[int]
    noisy: frozenset[int]
    killed: bool
    ends: bool
    told: tuple[float, ...]


TOLD = st.tuples(*[st.sampled_from([0.0, 0.3, 0.5, 3.0, -1.0, 1e30, float("nan")]) for _ in CLIENTS])
ROUNDS = st.lists(st.builds(Round, SOME, SOME, SOME, st.booleans(), st.booleans(), TOLD), min_size=1, max_size=6)


def _strategy(script: list[Round], merge: float | None, candidates: int) -> CLMA:
    return CLMA(
        flagged=lambda number: set(script[number - 1].flagged),
        return_rule=ReturnRule(),
        recognition=RecognitionRule(),
        candidates=candidates,
        best_start=candidates > 0,
        step_rule=StepRule(),
        defence=Defence(LengthRule(), OppositionRule(), unharmed=False),
        merge_cohorts_threshold=merge,
        reconverged=merge,
        **options(),
    )


def _judge(weights: Weights) -> Metrics:
    """Some models are better than others, whoever asks."""
    return {"loss": float(abs(weights["w"].mean()))}


@settings(max_examples=25, deadline=None)
@given(script=ROUNDS, merge=st.sampled_from([None, 0.05, 1.0]), candidates=st.sampled_from([0, 1, 3]))
def test_any_rounds_keep_everybody_in_exactly_one_cohort_and_ids_are_never_used_again(
    script: list[Round], merge: float | None, candidates: int
) -> None:
    made = [_strategy(script, merge, candidates) for _ in range(2)]
    whole, cut = (Rounds(strategy, fleet_of(a=[1, 2, 3], b=[4, 5], c=[6, 7])) for strategy in made)
    seen, gone = set[str](), set[str]()
    for spec in script:
        for rounds in (whole, cut):
            for node, client in rounds.clients.items():
                client.away, client.noise = node in spec.away, 6.0 if node in spec.noisy else 0.3
                client.judge = _judge
                client.metrics["clma-loss"] = spec.told[node - 1]
            rounds.run()
        if spec.killed:
            state = decode_state(encode_state(cut.strategy.export_state()))
            cut.strategy = _strategy(script, merge, candidates)
            cut.strategy.import_state(state)
        if spec.ends:
            whole.strategy.end_adaptation()
            cut.strategy.end_adaptation()
        registry = whole.strategy.registry
        listed = sorted(client for cohort in registry.cohort_ids for client in registry.members(cohort))
        assert listed == list(CLIENTS)
        assert not registry.quarantined
        assert all(registry.params(cohort) for cohort in registry.cohort_ids)
        assert all(registry.members(cohort) for cohort in registry.cohort_ids if cohort != "root")
        assert not gone & set(registry.cohort_ids)
        gone |= seen - set(registry.cohort_ids)
        seen |= set(registry.cohort_ids)
    assert encode_state(cut.strategy.export_state()) == encode_state(whole.strategy.export_state())

from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from numpy.typing import NDArray

from server_bridge.cohorts.clustering import AutoKMeans
from server_bridge.cohorts.cohorter import ClientId, CLMACohorter, CohortAssignment, CohortContext, Cohorter
from server_bridge.cohorts.cosine import CosineCohorter
from server_bridge.cohorts.selectors import AllParams, LastLayers
from server_bridge.flower.clma import CLMA
from server_bridge.flower.records import to_record, to_tensors
from server_bridge.flower.regrouping import takes_context
from tests.flower.by_hand import A, B, Client, Rounds, close, flags, fleet_of, grid_of, options
from tests.flower.memory_fleet import initial_weights


def test_the_reference_is_the_mean_of_bases_first_and_of_the_last_replies_then() -> None:
    seen: list[NDArray[Any]] = []

    class Spy(CLMACohorter):
        def cohort(
            self,
            ids: Sequence[ClientId],
            matrix: NDArray[Any] | Sequence[NDArray[Any]],
            reference: NDArray[Any],
            *,
            context: CohortContext | None = None,
        ) -> CohortAssignment:
            seen.append(reference)
            return super().cohort(ids, matrix, reference)

    clients = fleet_of(a=[1, 2], c=[3, 4])
    clients[3].metrics["num-examples"] = 90
    strategy = CLMA(cohorter=Spy(), param_selector=AllParams(), flagged=flags(r1=[1], r2=[1, 2], r4=[1]), **options())
    rounds = Rounds(strategy, clients).run()
    flatten = AllParams().flatten
    np.testing.assert_allclose(seen[0], flatten(initial_weights()), atol=1e-6)
    expected = rounds.mean([1, 2, 3, 4])
    close(to_tensors(rounds.arrays or ArrayRecord()), expected)
    rounds.run()
    np.testing.assert_allclose(seen[1], flatten(expected), atol=1e-5)
    rounds.run()
    strategy.end_adaptation()
    clients[4].metrics["num-examples"] = 40
    rounds.run()
    examples = [10, 10, 90, 40]
    bases = np.average([flatten(rounds.sent[n]) for n in (1, 2, 3, 4)], axis=0, weights=examples)
    np.testing.assert_allclose(seen[2], bases, atol=1e-5)


class ThreeArguments(Cohorter):
    """Written for the reference package: knows no context."""

    def cohort(  # type: ignore[override]  # the point of the test
        self, client_ids: Sequence[ClientId], matrix: NDArray[Any], reference: NDArray[Any]
    ) -> CohortAssignment:
        return CohortAssignment(assignments={client: client % 2 for client in client_ids})


def test_a_cohorter_of_three_arguments_works() -> None:
    strategy = CLMA(cohorter=ThreeArguments(), flagged=flags(r1=[1, 2, 3]), **options())
    assert Rounds(strategy, fleet_of(a=[1, 2, 3])).run().groups == {"root": [], "c1": [1, 3], "c2": [2]}
    assert not takes_context(ThreeArguments())
    assert takes_context(CosineCohorter())


def test_the_context_says_what_is_known() -> None:
    seen: list[CohortContext] = []

    class Spy(CosineCohorter):
        def cohort(
            self,
            ids: Sequence[ClientId],
            matrix: NDArray[Any],
            reference: NDArray[Any],
            *,
            context: CohortContext | None = None,
        ) -> CohortAssignment:
            seen.append(context or CohortContext())
            return super().cohort(ids, matrix, reference, context=context)

    clients = fleet_of(a=[1, 2], c=[3])
    clients[1].metrics["clma-split-half"] = 0.75
    clients[2].metrics["clma-split-half"] = float("nan")
    Rounds(CLMA(cohorter=Spy(), flagged=flags(r1=[1, 2]), **options()), clients).run()
    (context,) = seen
    assert context.bases is not None
    assert context.bases[1] is context.bases[2]
    assert context.former == {1: "root", 2: "root"}
    assert context.examples == {1: 10.0, 2: 10.0, 3: 10.0}
    assert context.reliability == {1: 0.75}
    assert list(context.stable_changes or {}) == [3]
    assert list(context.tensors) == [weights.size for weights in initial_weights().values()]


def _asked(strategy: CLMA, clients: dict[int, Client], number: int) -> set[int]:
    """Who is asked for its split-half cosine in a round."""
    messages = strategy.configure_train(number, to_record(initial_weights()), ConfigRecord(), grid_of(clients))
    return {m.metadata.dst_node_id for m in messages if m.content.config_records["config"].get("clma-split-half")}


def test_only_those_about_to_be_regrouped_are_asked_for_their_reliability() -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    strategy = CLMA(flagged=flags(r1=[1], r2=[1, 2]), **options())
    rounds = Rounds(strategy, clients)
    assert _asked(strategy, clients, 1) == {1}
    rounds.run()
    assert _asked(strategy, clients, 2) == {2}
    assert _asked(CLMA(cohorter=CosineCohorter(), flagged=flags(r1=[1]), **options()), clients, 1) == set()
    assert _asked(CLMA(**options()), clients, 1) == set()


def test_paper_mode_compares_weights_with_the_reference() -> None:
    paper = CLMA(
        param_selector=AllParams(),
        cohorter=CLMACohorter(center=False, clusterer=AutoKMeans(fixed_k=2)),
        flagged=flags(r1=[1, 2, 3, 4]),
        **options(),
    )
    rounds = Rounds(paper, fleet_of(a=[1, 2], b=[3, 4], c=[5])).run()
    assert rounds.strategy.registry.members("root") == [5]
    statistics = {m.client: m.statistic for m in paper.registry.round_moves if m.reason == "drifted"}
    assert all(value is not None and -1 <= value <= 1 for value in statistics.values())


def test_only_selected_tensors_speak() -> None:
    other = {"w": A["w"], "b": B["b"]}
    clients = {1: Client(A, noise=0.01), 2: Client(other, noise=0.01)}
    alike = Rounds(CLMA(flagged=flags(r1=[1, 2]), **options()), clients).run()
    assert alike.groups == {"root": [], "c1": [1, 2]}
    apart = Rounds(CLMA(param_selector=LastLayers(1), flagged=flags(r1=[1, 2]), **options()), clients).run()
    assert len(apart.groups) == 3

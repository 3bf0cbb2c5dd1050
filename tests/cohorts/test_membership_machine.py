"""Any sequence of what can happen to a registry: nobody is lost, nobody is in two cohorts, no name comes twice."""

import json

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from server_bridge.cohorts.membership import ROOT, CohortRegistry, Reason
from server_bridge.cohorts.selectors import AllParams

CLIENTS = st.integers(1, 6)
SOME = st.sets(CLIENTS, min_size=1)


class Memberships(RuleBasedStateMachine):
    """Rounds in any order, with the registry sent through JSON whenever it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = CohortRegistry()
        self.registry.ensure_root([])
        self.known: set[int] = set()
        self.seen: list[str] = [ROOT]
        self.gone: set[str] = set()
        self.drawn = np.random.default_rng(0)

    def _model(self) -> dict[str, np.ndarray]:
        return {"w": self.drawn.normal(size=3)}

    @rule(clients=SOME)
    def newcomers(self, clients: set[int]) -> None:
        self.registry.ensure_root(clients)
        self.known |= clients

    @rule(client=CLIENTS)
    def leaves(self, client: int) -> None:
        self.registry.forget(client)
        self.known.discard(client)

    @rule(clients=SOME)
    def drift(self, clients: set[int]) -> None:
        for client in clients & self.known:
            self.registry.quarantine(client)

    @precondition(lambda self: self.registry.quarantined)
    @rule(data=st.data())
    def regroup(self, data: st.DataObject) -> None:
        members = data.draw(st.sets(st.sampled_from(sorted(self.registry.quarantined)), min_size=1))
        name = self.registry.create_cohort(members, self._model())
        assert name not in self.seen
        self.seen.append(name)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), reason=st.sampled_from(["recognised", "returned"]))
    def recognised(self, data: st.DataObject, reason: Reason) -> None:
        members = data.draw(st.sets(st.sampled_from(sorted(self.known)), min_size=1))
        cohort = data.draw(st.sampled_from(self.registry.cohort_ids))
        before = dict(self.registry.params(cohort))
        self.registry.join(members, cohort, reason=reason)
        assert members <= set(self.registry.members(cohort))
        assert self.registry.params(cohort).keys() == before.keys()
        assert all(self.registry.params(cohort)[name] is tensor for name, tensor in before.items())

    @rule()
    def end_of_round(self) -> None:
        self.registry.clear_quarantine()
        before = set(self.registry.cohort_ids)
        self.gone |= set(self.registry.prune_empty())
        self.gone |= before - set(self.registry.cohort_ids)
        self.registry.snapshot()

    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        names = [cohort for cohort in self.registry.cohort_ids if self.registry.params(cohort)]
        if len(names) >= 2:
            first, second = sorted(data.draw(st.permutations(names))[:2], key=names.index)
            self.registry.merge(first, second, data.draw(st.sampled_from(["merged", "returned"])))
            self.gone.add(second)

    @rule(threshold=st.floats(0, 2))
    def merge_similar(self, threshold: float) -> None:
        self.gone |= set(self.registry.merge_similar(AllParams(), threshold))

    @precondition(lambda self: len(self.registry.cohort_ids) > 1)
    @rule(client=CLIENTS, data=st.data())
    def placed(self, client: int, data: st.DataObject) -> None:
        self.registry.place(client, data.draw(st.sampled_from(self.registry.cohort_ids)))
        self.known.add(client)

    @rule(number=st.integers(1, 9))
    def placed_from_elsewhere(self, number: int) -> None:
        name = f"c{number}"
        if name not in self.gone:
            self.registry.set_params(name, self._model())
            self.seen.append(name)

    @rule()
    def killed_and_resumed(self) -> None:
        models = {cohort: self.registry.params(cohort) for cohort in self.registry.cohort_ids}
        document = json.loads(json.dumps(self.registry.export()))
        self.registry = CohortRegistry()
        self.registry.restore(document, models)
        assert json.loads(json.dumps(self.registry.export())) == document

    @invariant()
    def everybody_is_in_one_place(self) -> None:
        placed, waiting = set(self.registry.assignments), self.registry.quarantined
        assert placed | waiting == self.known
        assert not placed & waiting
        listed = [client for cohort in self.registry.cohort_ids for client in self.registry.members(cohort)]
        assert sorted(listed) == sorted(placed)

    @invariant()
    def what_is_gone_stays_gone(self) -> None:
        assert not self.gone & set(self.registry.cohort_ids)
        assert ROOT in self.registry.cohort_ids


Memberships.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestMemberships = Memberships.TestCase

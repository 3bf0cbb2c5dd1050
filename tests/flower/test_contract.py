"""The contract of names: CLMA under Flower's own ``Strategy.start``, with clients written for the reference package."""

import inspect
import math
from abc import ABC
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from server_bridge.cohorts.clustering import AutoKMeans, Clusterer, OneCohortPerClient
from server_bridge.cohorts.cohorter import CLMACohorter, CohortAssignment, Cohorter
from server_bridge.cohorts.projection import project
from server_bridge.cohorts.selectors import AllParams, DefaultSelector, LastLayers, NameFilter, ParamSelector
from server_bridge.flower import reporting
from server_bridge.flower.clma import CLMA
from server_bridge.flower.records import prepare_process
from tests.flower.grid_in_process import GridInProcess

Reporter = Callable[[Context], Any]
PAPER = {"cohorter": CLMACohorter(center=False, clusterer=AutoKMeans(fixed_k=2)), "param_selector": AllParams()}


@dataclass
class Client:
    """Adds its drift to what it is sent; its loss jumps when the drift begins."""

    drift: float = 0.0
    begins: int = 3
    joins: int = 1
    leaves: int = 10_000
    silent: bool = False
    examples: int = 20
    context: Context = field(default_factory=lambda: Context(1, 1, {}, RecordDict(), {}))

    def train(self, message: Message, node: int, reporter: Reporter, read_cohort: Callable[[Message], Any]) -> Message:
        server_round = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]  # Flower's own
        assert int(read_cohort(message)) >= 0
        drifted = self.drift != 0 and server_round >= self.begins
        rng = np.random.default_rng([node, server_round])
        arrays = {
            name: Array((array.numpy() + drifted * self.drift + 0.01 * rng.normal(size=array.shape)).astype("f4"))
            for name, array in message.content.array_records["arrays"].items()
        }
        loss = 0.9 if drifted and server_round == self.begins else 0.3
        reply: Message = reporter(self.context).build_reply(
            message, ArrayRecord(arrays), loss=loss, num_examples=self.examples, extra_metrics={"accuracy": 0.5}
        )
        return reply


class MemoryGrid(GridInProcess):
    """Flower's grid with clients in this process."""

    def __init__(self, clients: dict[int, Client], reporter: Reporter, read_cohort: Callable[[Message], Any]) -> None:
        super().__init__()
        self.clients, self.reporter, self.read_cohort = clients, reporter, read_cohort
        self.round = 1

    def get_node_ids(self) -> list[int]:
        return [node for node, client in self.clients.items() if client.joins <= self.round < client.leaves]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return [reply for message in messages if (reply := self._reply(message)) is not None]

    def _reply(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        self.numbered(message)
        if message.metadata.message_type == "evaluate":
            self.round = 1 + int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]  # Flower's own
            metrics = MetricRecord({"num-examples": max(self.clients[node].examples, 1), "accuracy": 0.5})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)
        if self.clients[node].silent:
            return None
        return self.clients[node].train(message, node, self.reporter, self.read_cohort)


def _start(strategy: CLMA, clients: dict[int, Client], rounds: int = 4, **ways: Any) -> Any:
    prepare_process()
    rng = np.random.default_rng(0)
    initial = ArrayRecord({"w": Array(rng.normal(size=(40, 8)).astype("f4")), "b": Array(np.zeros(8, "f4"))})
    grid = MemoryGrid(clients, ways.get("reporter", reporting.DriftReporter), ways.get("read", reporting.cohort_id))
    return strategy.start(grid=grid, initial_arrays=initial, num_rounds=rounds)


def _options() -> dict[str, Any]:
    return {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}


def _families() -> dict[int, Client]:
    return {node: Client(drift) for node, drift in enumerate([0.0, 0.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0], start=1)}


def _partition(history: dict[int, Any]) -> set[frozenset[int]]:
    return {frozenset(c for c, mine in history.items() if mine == cohort) for cohort in set(history.values())}


FAMILIES = {frozenset({1, 2}), frozenset({3, 4, 5}), frozenset({6, 7, 8})}


@pytest.mark.parametrize("keywords", [{"cohorter": CLMACohorter()}, {}])
def test_the_strategy_runs_under_start_and_parts_the_families(keywords: dict[str, Any]) -> None:
    strategy = CLMA(**keywords)
    result = _start(strategy, _families())
    assert [len(_partition(after)) for after in strategy.cohort_history] == [1, 1, 3, 3]
    assert _partition(strategy.cohort_history[-1]) == FAMILIES
    drifted = {
        server_round: metrics["clma-num-drifted"] for server_round, metrics in result.train_metrics_clientapp.items()
    }
    assert drifted == {1: 0, 2: 0, 3: 6, 4: 0}
    third = result.train_metrics_clientapp[3]
    assert (third["clma-num-cohorts"], third["clma-num-new-cohorts"], third["clma-num-merged-cohorts"]) == (3, 2, 0)
    assert third["accuracy"] == pytest.approx(0.5)
    assert {"num-examples", "clma-loss"} & set(third) == {"clma-loss"}
    assert result.evaluate_metrics_clientapp[4]["accuracy"] == pytest.approx(0.5)


@pytest.mark.reference
@pytest.mark.parametrize("keywords", [PAPER, {"cohorter": CLMACohorter()}])
def test_clients_with_the_references_reporter_run_unchanged_and_part_as_under_the_reference(
    keywords: dict[str, Any],
) -> None:
    import clma

    theirs_cohorter: Any = (
        clma.CLMACohorter(center=False, clusterer=clma.AutoKMeans(fixed_k=2)) if keywords is PAPER else None
    )
    theirs = clma.CLMA(cohorter=theirs_cohorter, param_selector=clma.AllParams() if keywords is PAPER else None)
    ours = CLMA(**keywords)
    strategies: tuple[Any, Any] = (theirs, ours)
    for strategy in strategies:
        _start(strategy, _families(), reporter=clma.DriftReporter, read=clma.cohort_id)
    assert [_partition(after) for after in ours.cohort_history] == [
        _partition(after) for after in theirs.cohort_history
    ]


def test_a_flag_in_the_first_round_needs_no_reference_before() -> None:
    class Eager(reporting.DriftReporter):
        def observe(self, loss: float) -> bool:
            return super().observe(loss) or loss > 0.5

        def build_reply(self, *args: Any, **kwargs: Any) -> Message:
            flag = {"clma-drift": int(self.observe(kwargs["loss"]))}
            return super().build_reply(*args, **{**kwargs, "extra_metrics": flag})

    clients = {node: Client(drift, begins=1) for node, drift in enumerate([0.0, 2.0, 2.0, 2.0], start=1)}
    strategy = CLMA(cohorter=CLMACohorter(), **_options())
    result = _start(strategy, clients, rounds=1, reporter=Eager)
    assert _partition(strategy.cohort_history[0]) == {frozenset({1}), frozenset({2, 3, 4})}
    assert result.train_metrics_clientapp[1]["clma-num-drifted"] == 3


@pytest.mark.parametrize("silent", [{1, 2, 3, 4, 5, 6, 7, 8}, {2, 3, 4, 5, 6, 7, 8}])
def test_nobody_and_one_reply(silent: set[int]) -> None:
    clients = _families()
    for node in silent:
        clients[node].silent = True
    strategy = CLMA(**_options())
    _start(strategy, clients, rounds=3)
    assert [_partition(after) for after in strategy.cohort_history] == [{frozenset(range(1, 9))}] * 3


def test_everyone_drifts_one_joins_late_and_one_leaves() -> None:
    clients = {node: Client(drift) for node, drift in enumerate([2.0, 2.0, 2.0, -2.0, -2.0, -2.0], start=1)}
    clients[7] = Client(joins=4)
    clients[6].leaves = 4
    strategy = CLMA(cohorter=CLMACohorter(), **_options())
    _start(strategy, clients, rounds=5)
    assert _partition(strategy.cohort_history[2]) == {frozenset({1, 2, 3}), frozenset({4, 5, 6})}
    assert strategy.registry.members("root") == [7]
    assert strategy.registry.cohort_of(6) == strategy.registry.cohort_of(5)


def test_a_client_without_examples_is_left_out_and_ends_nothing() -> None:
    clients = _families()
    clients[3].examples = 0
    strategy = CLMA(cohorter=CLMACohorter(), **_options())
    _start(strategy, clients, rounds=4)
    assert 3 in strategy.refused
    assert strategy.registry.cohort_of(3) == "root"
    assert _partition(strategy.cohort_history[-1]) == {frozenset({1, 2, 3}), frozenset({4, 5}), frozenset({6, 7, 8})}


def test_flagged_clients_of_several_cohorts_regroup_and_an_emptied_cohort_vanishes() -> None:
    clients = {node: Client(drift, begins=2) for node, drift in enumerate([0.0, 0.0, 2.0, 2.0, -2.0, -2.0], start=1)}
    strategy = CLMA(
        cohorter=CLMACohorter(), flagged=lambda r: {2: {3, 4, 5, 6}, 4: {2, 3, 4}}.get(r, set()), **_options()
    )
    _start(strategy, clients, rounds=4)
    before = strategy.cohort_history[1]
    assert _partition(before) == {frozenset({1, 2}), frozenset({3, 4}), frozenset({5, 6})}
    after = strategy.cohort_history[3]
    assert before[3] not in strategy.registry.cohort_ids
    assert after[3] == after[4]
    assert {after[1], after[5]} == {"root", before[5]}


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


NAMES: Sequence[tuple[str, str, dict[str, Any]]] = (
    ("server_bridge.flower.clma", "CLMA", {"cohorter": None, "param_selector": None, "merge_cohorts_threshold": None}),
    (
        "server_bridge.cohorts.cohorter",
        "CLMACohorter",
        {"clusterer": None, "variance_threshold": 0.95, "center": True, "min_ks_magnitude": 0.0},
    ),
    (
        "server_bridge.cohorts.clustering",
        "AutoKMeans",
        {"fixed_k": None, "max_k": 10, "min_silhouette": 0.25, "random_state": 0},
    ),
    ("server_bridge.cohorts.clustering", "OneCohortPerClient", {}),
    ("server_bridge.cohorts.signed_ks", "signed_ks_statistic", {}),
    ("server_bridge.cohorts.signed_ks", "ks_pvalue", {}),
    (
        "server_bridge.cohorts.projection",
        "project",
        {"variance_threshold": 0.95, "center": False, "max_components": None},
    ),
    ("server_bridge.cohorts.selectors", "AllParams", {}),
    ("server_bridge.cohorts.selectors", "DefaultSelector", {"extra_exclude": ()}),
    ("server_bridge.cohorts.selectors", "NameFilter", {"include": None, "exclude": ()}),
    ("server_bridge.cohorts.selectors", "LastLayers", {"n": 2}),
    ("edge_agent.drift.detectors", "LossThresholdDetector", {"gamma": 0.1, "patience": 1}),
    ("edge_agent.drift.detectors", "InferenceDriftMonitor", {"detector": None}),
    ("server_bridge.flower.reporting", "DriftReporter", {}),
    ("server_bridge.flower.reporting", "cohort_id", {"config_key": "config"}),
)


@pytest.mark.parametrize(("module", "name", "defaults"), NAMES, ids=[name for _, name, _ in NAMES])
def test_names_and_defaults_are_the_contracts(module: str, name: str, defaults: dict[str, Any]) -> None:
    assert defaults.items() <= _defaults(getattr(import_module(module), name)).items()


@pytest.mark.reference
@pytest.mark.parametrize(("module", "name"), [(module, name) for module, name, _ in NAMES])
def test_what_the_reference_takes_by_position_and_by_name_is_taken(module: str, name: str) -> None:
    theirs = getattr(import_module("clma.cohort" if name in ("ks_pvalue", "project") else "clma"), name)
    ours = inspect.signature(getattr(import_module(module), name)).parameters
    expected = [p for p in inspect.signature(theirs).parameters.values() if p.kind is not p.VAR_KEYWORD]
    positional = [p.name for p in ours.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional[: len(expected)] == [p.name for p in expected]


def test_what_is_to_be_replaced_is_abstract_and_the_rest_is_there() -> None:
    detector = import_module("edge_agent.drift.detectors").DriftDetector
    for kind in (Cohorter, Clusterer, ParamSelector, detector):
        assert issubclass(kind, ABC)
        assert inspect.isabstract(kind)
    assert issubclass(CLMA, FedAvg)
    assert CLMA().registry.assignments == {}
    assert CLMA().cohort_history == []
    assignment = CohortAssignment(assignments={1: 0, 2: 1})
    assert (assignment.ks_statistics, assignment.positive_group, assignment.negative_group) == ({}, [], [])
    assert assignment.num_cohorts == 2
    assert isinstance(AutoKMeans(), Clusterer)
    assert isinstance(OneCohortPerClient(), Clusterer)
    assert all(isinstance(s, ParamSelector) for s in (AllParams(), DefaultSelector(), NameFilter(), LastLayers()))
    assert project(np.eye(3), 1.0, False, 2).shape == (3, 2)


def test_a_reporter_remembers_in_the_context_and_forgets_when_told() -> None:
    context = Context(1, 1, {}, RecordDict(), {})
    assert [reporting.DriftReporter(context).observe(loss) for loss in (math.inf, 0.2, 0.31)] == [False, False, True]
    assert "clma-detector-state" in context.state.config_records
    reporting.DriftReporter(context).reset()
    assert not reporting.DriftReporter(context).observe(9.0)

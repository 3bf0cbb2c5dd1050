"""One adaptation: rounds, each committed whole, then one release."""

import time
from collections.abc import Callable, Mapping, Set

import structlog

from edge_agent.errors import EdgeError, TransientError
from edge_agent.wire.codec import Scalar
from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.tensors import Weights, decode_weights, encode_weights
from server_bridge.cohorts.membership import ROOT
from server_bridge.errors import BrokerAway
from server_bridge.fleet.transport import FleetTransport
from server_bridge.flower.clma import CLMA
from server_bridge.flower.engine import RoundOutcome, run_round
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.state import decode_state, encode_state
from server_bridge.flower.strategies import (
    StrategySettings,
    export_strategy,
    import_strategy,
    make_strategy,
)
from server_bridge.rounds.flags import OpenFlags
from server_bridge.rounds.lineage import Moment, record_abandoned, record_round
from server_bridge.rounds.release_book import Releases
from server_bridge.rounds.round_records import counted, counted_facts, counted_words, useless, without_result
from server_bridge.rounds.round_settings import RoundSettings, grid_settings
from server_bridge.rounds.strategy_memory import StrategyMemory
from server_bridge.store.adaptations import DONE, FAILED, RUNNING, Adaptation
from server_bridge.store.bundles import BundleFolder
from server_bridge.store.store import Store

_ATTEMPT_KEY = "clma-attempt"

_log = structlog.get_logger(__name__)


class AdaptationRunner:
    """Runs adaptations; everything between two rounds is in the store.

    Args:
        store: rounds, flags, strategy state, decisions.
        fleet: trains.
        bundles: manifests.
        releases: where an adaptation begins, and ends.
        strategy: which strategy.
        settings: what rounds ask.
        open_flags: the open flags of a bundle now.
        stopped: waits up to so many seconds; whether the bridge is stopping.
        wall: seconds since 1970, for records only.
    """

    def __init__(
        self,
        store: Store,
        fleet: FleetTransport,
        bundles: BundleFolder,
        releases: Releases,
        strategy: StrategySettings,
        settings: RoundSettings,
        open_flags: Callable[[str], OpenFlags],
        stopped: Callable[[float], bool],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._bundles = bundles
        self._releases = releases
        self._strategy = strategy
        self._memory = StrategyMemory(store, strategy)
        self._settings = settings
        self._open_flags = open_flags
        self._stopped = stopped
        self._wall = wall

    def begin(self, bundle: str, reason: str, detail: str, gateways: tuple[str, ...]) -> None:
        """Record a running adaptation that starts from the released weights."""
        with self._store.transaction():
            name = f"a{self._store.counters.next('adaptation')}"
            adaptation = Adaptation(
                id=name,
                bundle=bundle,
                strategy=self._strategy.name,
                status=RUNNING,
                rounds=self._settings.rounds,
                rounds_done=0,
                attempts=0,
                started_s=self._wall(),
                ended_s=None,
                reason=reason,
                base=self._releases.current(bundle),
                state=None,
            )
            self._store.adaptations.begin(adaptation)
            facts = {"gateways": list(gateways), "strategy": self._strategy.name}
            self._store.decisions.record("start", reason, detail, self._wall(), adaptation=name, facts=facts)

    def run(self) -> None:
        """Go on with the running adaptation until it has ended or the bridge is stopping.

        A round that cannot even be sent, for want of a broker, waits for it and counts as no attempt.
        """
        while (adaptation := self._store.adaptations.running()) is not None and not self._stopped(0.0):
            try:
                self._step(adaptation)
            except BrokerAway as error:
                _log.warning("round-postponed", adaptation=adaptation.id, problem=error.problem)
                self._stopped(self._settings.retry_wait_s)
            except EdgeError as error:
                self._nobody(adaptation, self._wall(), str(error), {})

    def _step(self, adaptation: Adaptation) -> None:
        if adaptation.rounds_done >= adaptation.rounds:
            self._release(adaptation)
        elif adaptation.attempts >= self._settings.attempts:
            self._end(adaptation, FAILED, "no-replies", f"round {adaptation.rounds_done + 1}: no usable answers")
        elif adaptation.attempts == 0 or not self._stopped(self._settings.retry_wait_s):
            self._round(adaptation)

    def _round(self, adaptation: Adaptation) -> None:
        started_s = self._wall()
        flags = self._open_flags(adaptation.bundle)
        outcome, state = self._train(adaptation, flags)
        if self._stopped(0.0):
            return
        problem = useless(adaptation, outcome, flags.gateways)
        if problem is None:
            self._commit(adaptation, outcome, flags, started_s, self._store.blobs.put(state))
        else:
            self._nobody(adaptation, started_s, problem, outcome.failed)

    def _train(self, adaptation: Adaptation, flags: OpenFlags) -> tuple[RoundOutcome, bytes]:
        """One round with a strategy made from what is stored, so that a resumed one is no special case."""
        nodes = {gateway.id: gateway.node_id for gateway in self._fleet.gateways()}
        drifted = {nodes[gateway] for gateway in flags.gateways if gateway in nodes}
        strategy = make_strategy(
            self._strategy,
            flagged=lambda _: drifted,
            new_cohort_id=self._new_cohort,
            carried=self._carried(adaptation.bundle),
        )
        if adaptation.state is not None:
            import_strategy(strategy, decode_state(self._store.blobs.read(adaptation.state)))
        elif isinstance(strategy, CLMA):
            self._place(strategy, adaptation, nodes)
            self._memory.remind(strategy, adaptation.bundle)
        arrays = self._weights(adaptation, ROOT)
        asked = grid_settings(self._settings, self._bundles, adaptation, arrays)
        grid = MqttGrid(self._fleet, asked, cancelled=lambda: self._stopped(0.0))
        config: dict[str, Scalar] = {_ATTEMPT_KEY: adaptation.attempts + 1} if adaptation.attempts else {}
        outcome = run_round(strategy, grid, arrays, adaptation.rounds_done + 1, config, self._settings.timeout_s)
        return outcome, encode_state(export_strategy(strategy))

    def _place(self, strategy: CLMA, adaptation: Adaptation, nodes: Mapping[str, int]) -> None:
        """An adaptation begins with the membership and the weights that are released."""
        members = self._releases.members(adaptation.bundle)
        placed = {nodes[gateway]: cohort for gateway, cohort in members.items() if gateway in nodes}
        strategy.place(placed, {cohort: self._weights(adaptation, cohort) for cohort in adaptation.base})

    def _commit(
        self, adaptation: Adaptation, outcome: RoundOutcome, flags: OpenFlags, started_s: float, state: str
    ) -> None:
        weights = {
            cohort: self._store.blobs.put(encode_weights(tensors)) for cohort, tensors in outcome.cohort_weights.items()
        }
        record = counted(adaptation, outcome, flags.gateways, started_s, self._wall(), weights)
        answered = [flag.flag_id for flag in flags.current if flag.gateway in outcome.ok]
        with self._store.transaction():
            self._store.adaptations.commit_round(record, state)
            self._remember(adaptation, outcome, record.ended_s)
            self._store.flags.consume(answered, adaptation.id, outcome.server_round)
            self._store.decisions.record(
                "round",
                "committed",
                counted_words(adaptation, outcome, len(weights)),
                record.ended_s,
                adaptation=adaptation.id,
                facts=counted_facts(outcome),
            )
        self._sweep(adaptation, outcome.server_round, state)

    def _remember(self, adaptation: Adaptation, outcome: RoundOutcome, now_s: float) -> None:
        moment = Moment(adaptation.bundle, adaptation.id, outcome.server_round, now_s)
        names = {gateway.node_id: gateway.id for gateway in self._fleet.gateways()}
        record_round(
            self._store.lineage, moment, outcome.moves, names, outcome.members, {ROOT, *outcome.cohort_weights}
        )

    def _sweep(self, adaptation: Adaptation, number: int, state: str) -> None:
        """A committed round is never asked again: its updates, and the state before it, may go."""
        old = set(self._store.commands.update_digests(f"{adaptation.id}-{number}-"))
        self._remove(old | {adaptation.state} - {state})

    def _remove(self, digests: Set[str | None]) -> None:
        for digest in digests - {None}:
            self._store.blobs.remove(str(digest))

    def _nobody(self, adaptation: Adaptation, started_s: float, problem: str, failed: dict[str, str]) -> None:
        """A round without a result: recorded, and tried again a stated number of times."""
        record = without_result(adaptation, started_s, self._wall(), failed)
        detail = f"round {record.round}, attempt {record.attempt} of {self._settings.attempts}: {problem}"
        with self._store.transaction():
            self._store.adaptations.record_failed_round(record)
            self._store.decisions.record(
                "round", "no-result", detail, self._wall(), adaptation=adaptation.id, facts={"failed": failed}
            )

    def _new_cohort(self) -> str:
        return f"c{self._store.counters.next('cohort')}"

    def _carried(self, bundle: str) -> list[TrainableSpec]:
        """The tensors that some gateway's update carries."""
        graphs = {self._settings.training_graph, *self._settings.gateway_graphs.values()}
        names = {spec.name for graph in graphs for spec in self._bundles.update_specs(bundle, graph)}
        return [spec for spec in self._bundles.manifest(bundle).trainable if spec.name in names]

    def _weights(self, adaptation: Adaptation, cohort: str) -> Weights:
        return decode_weights(self._store.blobs.read(self._latest(adaptation)[cohort]))

    def _latest(self, adaptation: Adaptation) -> Mapping[str, str]:
        """Digest of each cohort's weights after the last committed round."""
        for record in reversed(self._store.adaptations.rounds(adaptation.id)):
            if record.weights:
                return record.weights
        return adaptation.base

    def _release(self, adaptation: Adaptation) -> None:
        last = [record for record in self._store.adaptations.rounds(adaptation.id) if record.weights][-1]
        current = self._releases.current(adaptation.bundle)
        changed = {cohort: digest for cohort, digest in last.weights.items() if current.get(cohort) != digest}
        members = {gateway: cohort for gateway, cohort in last.cohorts.items() if cohort != ROOT}
        if not changed and members == self._releases.members(adaptation.bundle):
            self._end(adaptation, DONE, "nothing-changed", "weights and membership are as released")
            return
        weights = {cohort: self._store.blobs.read(digest) for cohort, digest in changed.items()}
        try:
            number = self._releases.release(
                adaptation.bundle,
                members,
                weights,
                f"adaptation {adaptation.id}, {adaptation.rounds} rounds",
                adaptation=adaptation.id,
            )
        except TransientError as error:
            _log.warning("release-postponed", adaptation=adaptation.id, problem=error.problem)
            self._stopped(self._settings.retry_wait_s)
            return
        except EdgeError as error:
            self._end(adaptation, FAILED, "release-refused", str(error))
            return
        self._end(adaptation, DONE, "released", f"release {number}: {len(changed)} cohorts changed")

    def _end(self, adaptation: Adaptation, status: str, reason: str, detail: str) -> None:
        now_s = self._wall()
        memory = self._memory.kept(adaptation) if status == DONE else None
        with self._store.transaction():
            self._store.adaptations.end(adaptation.id, status, reason, now_s, memory)
            if status == FAILED:
                members, cohorts = (of(adaptation.bundle) for of in (self._releases.members, self._releases.current))
                moment = Moment(adaptation.bundle, adaptation.id, None, now_s)
                record_abandoned(self._store.lineage, moment, members, cohorts)
            self._store.decisions.record(f"adaptation-{status}", reason, detail, now_s, adaptation=adaptation.id)
        self._remove({adaptation.state, *self._store.commands.update_digests(f"{adaptation.id}-")})
        _log.info("adaptation-ended", adaptation=adaptation.id, status=status, reason=reason, detail=detail)

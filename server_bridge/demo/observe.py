"""What the bridge's store says of the fleet at one moment, and what follows from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edge_agent.wire.messages import FlagEvent, State, UpdateLifecycleEvent
from server_bridge.demo.data import DELAY_S, MONITOR_BATCH
from server_bridge.demo.facts import Flag, GatewayFacts, Tally
from server_bridge.demo.measure import BASE, Model, buckets_of, clean_tally, drifted_tally, final_tally, points_of
from server_bridge.demo.streams import StreamPlan
from server_bridge.store.adaptations import Adaptation, RoundRecord
from server_bridge.store.counts import StoredCounts
from server_bridge.store.events import StoredEvent
from server_bridge.store.store import Store

EVENTS_A_LOOK = 10_000
CLOCK_SLACK_S = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the store.

    Attributes:
        started_s: when each gateway's stream began, wall clock.
    """

    online: frozenset[str]
    states: Mapping[str, State]
    counts: Mapping[str, Sequence[StoredCounts]]
    flags: Sequence[StoredEvent]
    updates: Sequence[StoredEvent]
    adaptations: Sequence[Adaptation]
    rounds: Sequence[RoundRecord]
    started_s: Mapping[str, float]

    def model(self, gateway: str) -> Model | None:
        """What a gateway says it serves."""
        state = self.states.get(gateway)
        return None if state is None else Model(state.cohort, state.weights_version)

    def refusals(self, map_digest: str) -> dict[str, tuple[str, float]]:
        """Reason and wall time of the refusal of a release map, by gateway."""
        found: dict[str, tuple[str, float]] = {}
        for event in self.updates:
            body = event.body
            refused = isinstance(body, UpdateLifecycleEvent) and body.step == "refused"
            if refused and isinstance(body, UpdateLifecycleEvent) and body.map_digest == map_digest:
                found.setdefault(event.gateway, (body.reason or "no reason", event.time_s))
        return found

    def activated_s(self, gateway: str) -> float | None:
        """Wall time at which a gateway first committed other weights than the base."""
        for event in self.updates:
            body = event.body
            if event.gateway != gateway or not isinstance(body, UpdateLifecycleEvent) or body.step != "committed":
                continue
            if body.version is not None and body.cohort is not None and not Model(body.cohort, body.version).is_base:
                return event.time_s
        return None


@dataclass(slots=True)
class Observer:
    """Reads the store again and again; what only grows is read once.

    Args:
        store: the bridge's; only read.
        streams: by gateway.
    """

    store: Store
    streams: Mapping[str, StreamPlan]
    _flags: list[StoredEvent] = field(default_factory=list)
    _updates: list[StoredEvent] = field(default_factory=list)
    _seen_id: int = 0
    _started_s: dict[str, float] = field(default_factory=dict)

    def look(self) -> Look:
        """What is known now.

        Raises:
            StorageError: the store cannot be read.
        """
        self._read_events()
        presences = self.store.gateways.presences()
        known = self.store.gateways.states()
        for gateway, each in known.items():
            self._note_start(gateway, each.received_s, each.state.served_samples)
        counts: dict[str, list[StoredCounts]] = {gateway: [] for gateway in self.streams}
        for row in self.store.counts.all():
            counts.setdefault(row.gateway, []).append(row)
        adaptations = self.store.adaptations.all()
        rounds = [each for adaptation in adaptations for each in self.store.adaptations.rounds(adaptation.id)]
        return Look(
            online=frozenset(gateway for gateway, presence in presences.items() if presence.online),
            states={gateway: each.state for gateway, each in known.items()},
            counts=counts,
            flags=tuple(self._flags),
            updates=tuple(self._updates),
            adaptations=adaptations,
            rounds=rounds,
            started_s=dict(self._started_s),
        )

    def _read_events(self) -> None:
        for event in self.store.events.recent(kinds=("flag", "update"), after_id=self._seen_id, limit=EVENTS_A_LOOK):
            self._seen_id = max(self._seen_id, event.id)
            (self._flags if isinstance(event.body, FlagEvent) else self._updates).append(event)

    def _note_start(self, gateway: str, received_s: float, served: int) -> None:
        """A state is never newer than what it counts, so the earliest start it allows is the closest."""
        if gateway not in self.streams or served == 0:
            return
        start_s = received_s - served / self.streams[gateway].rate_hz
        self._started_s[gateway] = min(start_s, self._started_s.get(gateway, start_s))


@dataclass(frozen=True, slots=True)
class Measured:
    """A gateway's accuracies so far; ``*_done``: nothing is missing."""

    before: Tally
    before_done: bool
    drifted: Tally
    final: Tally
    final_done: bool


def measured(stream: StreamPlan, look: Look) -> Measured:
    """The accuracies of one gateway."""
    gateway = stream.gateway.id
    counts = look.counts.get(gateway, ())
    base = buckets_of(counts, BASE)
    before, before_done = clean_tally(stream, base)
    model = look.model(gateway)
    final, final_done = Tally(), False
    if model is not None and not model.is_base:
        final, final_done = final_tally(stream, base, buckets_of(counts, model))
    return Measured(before, before_done, drifted_tally(base), final, final_done)


def recent_accuracy(stream: StreamPlan, look: Look, buckets: int = 2) -> float | None:
    """Accuracy over a gateway's newest buckets."""
    counts = look.counts.get(stream.gateway.id, ())
    newest = max((row.bucket for row in counts), default=0)
    near = [Tally(row.labelled, row.right) for row in counts if row.bucket > newest - buckets]
    return sum(near, Tally()).accuracy


def flags_of(stream: StreamPlan, look: Look, arm_started_s: float) -> tuple[Flag, ...]:
    """A gateway's flags; expected is one after its remount about the base weights.

    The batch that a flag is about may begin a little before the remount and end after it.
    """
    gateway = stream.gateway
    started_s = look.started_s.get(gateway.id, arm_started_s)
    reach_s = MONITOR_BATCH / stream.rate_hz + DELAY_S[1]
    flags = []
    for event in look.flags:
        if event.gateway != gateway.id or not isinstance(event.body, FlagEvent):
            continue
        about_base = Model(event.body.cohort, event.body.weights_version).is_base
        drifted_data = event.body.first_drifted_time_s >= stream.pass_s - reach_s
        in_time = event.time_s >= started_s + stream.pass_s - CLOCK_SLACK_S
        expected = gateway.drifts and about_base and drifted_data and in_time
        flags.append(Flag(event.time_s - arm_started_s, expected))
    return tuple(flags)


def gateway_facts(stream: StreamPlan, look: Look, arm_started_s: float, peak_rss_bytes: int) -> GatewayFacts:
    """Everything that the report says of a gateway."""
    gateway = stream.gateway
    accuracies = measured(stream, look)
    start_s = look.started_s.get(gateway.id, arm_started_s) - arm_started_s
    model = look.model(gateway.id) or BASE
    activated_s = look.activated_s(gateway.id)
    state = look.states.get(gateway.id)
    return GatewayFacts(
        id=gateway.id,
        family=gateway.family,
        subject=gateway.subject,
        remount_s=start_s + stream.pass_s,
        flags=flags_of(stream, look, arm_started_s),
        cohort=model.cohort,
        version=model.version,
        activated_s=None if activated_s is None else activated_s - arm_started_s,
        before=accuracies.before,
        drifted=accuracies.drifted,
        final=accuracies.final,
        points=tuple(points_of(stream, look.counts.get(gateway.id, ()), start_s)),
        peak_rss_bytes=max(peak_rss_bytes, state.peak_rss_bytes if state else 0),
    )

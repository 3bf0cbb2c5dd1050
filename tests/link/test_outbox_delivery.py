"""The outbox beside a bridge of a few lines, over a network that loses, repeats and reorders."""

import random
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from edge_agent.link.outbox import Priority
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import EVENT_CAP_BYTES, BlobMissingEvent, ErrorEvent, Event
from tests.link.outbox_rig import Rig


class ModelBridge:
    """A bridge of a few lines: it commits each (epoch, sequence) once and acknowledges what it has committed."""

    def __init__(self) -> None:
        self.committed: list[tuple[int, str]] = []
        self._done: set[int] = set()
        self._low = 0

    def take(self, event: Event) -> None:
        known = event.sequence < self._low or event.sequence in self._done
        self._low = max(self._low, min(event.low, event.sequence))
        self._done.add(event.sequence)
        for first, last in event.dropped:
            self._done.update(range(first, last + 1))
        if not known:
            assert isinstance(event.body, BlobMissingEvent | ErrorEvent)
            self.committed.append((event.sequence, event.body.place if isinstance(event.body, ErrorEvent) else ""))


class Delivery(RuleBasedStateMachine):
    """Loss, duplication, reordering, both sides restarting, caps: nothing lost unnoticed, nothing counted twice."""

    batches = Bundle("batches")

    def __init__(self) -> None:
        super().__init__()
        self.rig: Rig | None = None
        self.bridge = ModelBridge()
        self.put: dict[int, str] = {}
        self.up: list[bytes] = []
        self.down: list[tuple[int, int]] = []
        self.lost_to_caps: set[int] = set()

    @initialize(caps=st.sampled_from([1_000_000, 2_000]), seed=st.integers(0, 10**6))
    def begin(self, caps: int, seed: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.rig = Rig(Path(self.folder.name) / "agent.db", max_bytes=caps)
        self.caps = caps
        self.random = random.Random(seed)

    @property
    def live(self) -> Rig:
        assert self.rig is not None
        return self.rig

    @rule(priority=st.sampled_from(list(Priority)), padding=st.integers(0, 400))
    def gateway_puts(self, priority: Priority, padding: int) -> None:
        name = str(len(self.put))
        sequence = self.live.outbox.put(ErrorEvent(place=name, problem="x" * padding), priority)
        assert sequence not in self.put
        self.put[sequence] = name

    @rule(limit=st.integers(1, 5))
    def gateway_sends(self, limit: int) -> None:
        self.up.extend(data for _, data in self.live.outbox.due(self.live.monotonic.now_s, limit))

    @rule(elapsed_s=st.floats(0, 400))
    def time_passes(self, elapsed_s: float) -> None:
        self.live.monotonic.now_s += elapsed_s

    @rule()
    def gateway_restarts(self) -> None:
        self.live.database.close()
        self.live.open()

    @rule()
    def bridge_restarts(self) -> None:
        self.up.clear()
        self.down.clear()
        self.live.outbox.resend_all()

    @rule(data=st.data())
    def network_delivers_one_in_any_order(self, data: st.DataObject) -> None:
        if self.up:
            payload = self.up.pop(data.draw(st.integers(0, len(self.up) - 1)))
            self._bridge_takes(payload)

    @rule(data=st.data())
    def network_duplicates(self, data: st.DataObject) -> None:
        if self.up:
            self.up.append(self.up[data.draw(st.integers(0, len(self.up) - 1))])

    @rule(data=st.data())
    def network_loses(self, data: st.DataObject) -> None:
        if self.up:
            self.up.pop(data.draw(st.integers(0, len(self.up) - 1)))
        if self.down:
            self.down.pop(data.draw(st.integers(0, len(self.down) - 1)))

    @rule()
    def acknowledgements_arrive_in_any_order(self) -> None:
        self.random.shuffle(self.down)
        while self.down:
            self.live.outbox.acknowledge(self.live.outbox.epoch, [self.down.pop()])

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        sequences = [sequence for sequence, _ in self.bridge.committed]
        assert len(sequences) == len(set(sequences))
        assert all(self.put[sequence] == place for sequence, place in self.bridge.committed)

    @invariant()
    def the_cap_holds(self) -> None:
        if self.rig is not None:
            assert self.rig.outbox.held_bytes <= self.caps

    def teardown(self) -> None:
        if self.rig is None:
            return
        self.up.clear()
        self.down.clear()
        for _ in range(1000):
            if not self.live.outbox.depth:
                break
            self.live.outbox.resend_all()
            self.gateway_sends(50)
            for payload in self.up:
                self._bridge_takes(payload)
            self.up.clear()
            self.acknowledgements_arrive_in_any_order()
        missing = set(self.put) - {sequence for sequence, _ in self.bridge.committed}
        assert self.live.outbox.depth == 0
        assert len(missing) <= self.live.outbox.shed
        assert self.caps < 1_000_000 or not missing
        self.live.database.close()
        self.folder.cleanup()

    def _bridge_takes(self, payload: bytes) -> None:
        event = decode(Event, payload, cap_bytes=EVENT_CAP_BYTES)
        self.bridge.take(event)
        self.down.append((event.sequence, event.sequence))


TestDelivery = Delivery.TestCase
TestDelivery.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

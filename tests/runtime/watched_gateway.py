"""The parts of a gateway on a bundle with all monitors, fed as the recorder feeds them."""

import json
from pathlib import Path

from edge_agent.model.bundle import Bundle
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.wire.messages import FlagEvent
from tests.runtime.bench import Parts
from tests.runtime.watched import OWN, drawn, labelled, labels_of, served_of

SHIFT = 4.0
"""Of the first feature, in its standard deviations."""


class Gateway:
    """The parts of a gateway on a bundle with all monitors."""

    def __init__(self, path: Path, bundle: Bundle, rules: WatchRules) -> None:
        self.bundle = bundle
        self.parts = Parts(path, bundle, rules=rules)
        self.parts.activate(OWN, 1)
        self.now_s = 0.0
        self.first = 0

    def serve(
        self,
        count: int,
        *,
        moved: float = 0.0,
        seed: int = 7,
        label: bool = False,
        portion: int = 999,
        wrong: bool = False,
    ) -> int:
        """Samples as the recorder tells of them; ``portion`` at a time. Returns the flags raised."""
        x, outputs = drawn(count, seed + self.first, moved=moved)
        labels = outputs.argmin(axis=1) if wrong else labels_of(outputs, 10_000 + seed + self.first)
        flags = 0
        for start in range(0, count, portion):
            rows = slice(start, start + portion)
            batch, made = served_of(self.bundle, self.first + start, x[rows], outputs[rows], self.weights)
            self.now_s += len(batch.ids)
            with self.parts.samples_db.transaction():
                joined = self.parts.store.add(batch, made, self.now_s)
                if label:
                    joined += self.parts.store.label(labelled(self.first + start, labels[rows]), self.now_s)
            flags += self.watch.consume(joined, self.parts.active, [(batch, made)], now_s=self.now_s)
        self.first += count
        return flags

    @property
    def weights(self) -> str:
        return self.parts.active.weights

    @property
    def watch(self) -> DriftWatch:
        return self.parts.watch

    @property
    def verdict(self) -> str:
        return str(self.watch.standing.policy.verdict)

    @property
    def flags(self) -> list[FlagEvent]:
        return self.parts.flags()

    def restart(self) -> None:
        self.parts = self.parts.restarted()

    def rows(self) -> dict[str, tuple[str, object]]:
        """What is stored, without what is random."""
        found = self.parts.agent_db.query("SELECT name, place, state FROM watch ORDER BY name")
        rows = {name: (place, state) for name, place, state in found}
        place = json.loads(rows["watch"][0]) | {"epoch": "", "flag": None}
        return {**rows, "watch": (json.dumps(place), rows["watch"][1])}

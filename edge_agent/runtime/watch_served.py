"""What the monitors without labels see of what is served, until they judge it."""

from collections.abc import Sequence

from edge_agent.drift.observed import Columns, Observed, narrowed
from edge_agent.drift.policy.catalogue import Monitor
from edge_agent.runtime.watch_batches import (
    ServedBatches,
    in_portions,
    inputs_alone,
    observed,
    of_every_task,
    of_task,
)
from edge_agent.runtime.watch_held import Shown
from edge_agent.runtime.watch_rules import Watched, WatchRules
from edge_agent.samples.record import SampleBatch
from edge_agent.serving.server import Prepared, Served


class ServedViews:
    """Samples that wait for a full batch of each monitor; of features only what the monitors look at.

    Args:
        rules: which monitors there are.
    """

    def __init__(self, rules: WatchRules) -> None:
        self._rules = rules
        self._narrow = rules.narrow
        self._inputs = [spec.name for spec in rules.manifest.inputs] if rules.served else []
        self._batches = {
            one.monitor.name: ServedBatches(one.monitor.batch_size, self._columns(one.monitor.name))
            for one in rules.served
        }

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __getitem__(self, monitor: str) -> ServedBatches:
        return self._batches[monitor]

    @property
    def waiting(self) -> dict[str, int]:
        """Samples that wait, by monitor; any thread."""
        return {name: len(batches) for name, batches in self._batches.items()}

    def shown(self, batch: SampleBatch, made: Served) -> Shown:
        """What is to be kept of a batch by these rules' bundle until it is judged: of its features no more than is
        looked at, where that is less."""
        if not self._batches:
            return Shown(batch.without_features(), made)
        if not self._narrow or not batch.screened or batch.tasks:
            return Shown(batch, made)
        pieces = in_portions(batch, made, self._inputs)
        views = {name: self._seen(name, pieces) for name in self._batches}
        return Shown(batch.without_features(), made, views)

    def add(self, shown: Shown, active: Prepared) -> Observed:
        """A batch that the active model served; returns it as it says something of labels.

        Args:
            shown: as :meth:`shown` gave it, or whole.
        """
        batch, made, views = shown
        whole = self._of_tasks(observed(batch, made, [] if views else self._inputs), batch.tasks, active)
        for name, batches in self._batches.items():
            if views:
                batches.add(*(self._of_tasks(view, (), active) for view in views[name]))
            else:
                batches.add(*self._seen(name, [whole]))
        return whole

    def take(self, one: Watched) -> tuple[Monitor, Observed] | None:
        """Full batches that wait for a monitor, and what judges them; None: too few samples wait."""
        batches = self._batches[one.monitor.name]
        whole = batches.take()
        if whole is None:
            return None
        return self._narrow[one.monitor.name][1] if batches.is_narrow(whole) else one.monitor, whole

    def settled(self) -> None:
        """What was taken has been judged for good."""
        for batches in self._batches.values():
            batches.settled()

    def rewind(self) -> None:
        """What was taken since waits again: its judgement was not kept."""
        for batches in self._batches.values():
            batches.rewind()

    def _columns(self, name: str) -> Columns:
        return self._narrow[name][0] if self._narrow else ()

    def _seen(self, name: str, pieces: Sequence[Observed]) -> list[Observed]:
        """What a monitor sees of pieces."""
        columns = self._columns(name)
        return [narrowed(piece, columns) if columns and piece.finite else piece for piece in pieces]

    def _of_tasks(self, piece: Observed, tasks: Sequence[str | None], active: Prepared) -> Observed:
        if self._rules.answers is not None:
            return of_every_task(piece, self._rules.answers, tasks, active.tasks)
        if self._rules.inputs_alone:
            return inputs_alone(piece)
        return of_task(piece, tasks, active.tasks[0] if active.tasks else None)

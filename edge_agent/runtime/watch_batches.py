"""Batches of exactly a monitor's size from samples that come in any portions."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.observed import Columns, Observed, narrowed
from edge_agent.drift.task_answers import WIDTH, TaskAnswers
from edge_agent.samples.record import SampleBatch
from edge_agent.serving.server import Served

REWOUND_ROWS = 4096
"""Samples kept to be judged again while the disk refuses; older ones are passed over."""
TOGETHER_ROWS = 3072
"""Samples that are judged in one call: a tenth less for each than of half as many; of more, memory is what counts."""
WIDE_BYTES = 4096
"""Features of a sample: samples that are wider are judged where they lie, not put together first."""
BATCHES_REMEMBERED = 512
"""For saying where a change began that a monitor dates back; about 100 bytes each."""


class Began(NamedTuple):
    """Where a batch began: its earliest sample."""

    id: str
    time_s: float
    rows: int


class ServedBatches:
    """The samples that wait for a full batch of one monitor, and where its last batches began.

    Args:
        size: samples a batch.
        columns: of the features that the monitor looks at; none: all. Pieces come with these alone, but for those in
            which it is not told what is finite (``finite``): in the other columns nobody would know it any more.
    """

    def __init__(self, size: int, columns: Columns = ()) -> None:
        self._size = size
        self._columns = columns
        self._pieces: list[Observed] = []
        self._taken: list[Observed] = []
        self._waiting = 0
        self._began: deque[Began] = deque(maxlen=BATCHES_REMEMBERED)

    def __len__(self) -> int:
        return self._waiting

    def is_narrow(self, piece: Observed) -> bool:
        """Whether a piece has those columns alone that the monitor looks at."""
        return bool(self._columns) and piece.finite

    def add(self, *pieces: Observed) -> None:
        """Samples served after those that wait."""
        for piece in pieces:
            if len(piece):
                self._pieces.append(piece)
                self._waiting += len(piece)

    def clear(self) -> None:
        """Forget what waits: it was served by other weights, or its judgement failed."""
        self._pieces, self._taken, self._waiting = [], [], 0
        self._began.clear()

    def settled(self) -> None:
        """What was taken has been judged for good."""
        self._taken = []

    def rewind(self) -> None:
        """What was taken since the last :meth:`settled` waits again: its judgement was not kept."""
        batches = sum(len(whole) for whole in self._taken) // self._size
        for _ in range(min(batches, len(self._began))):  # no more are remembered
            self._began.pop()
        self._pieces = [*self._taken, *self._pieces]
        self._taken = []
        self._waiting = sum(len(piece) for piece in self._pieces)
        while self._waiting > max(REWOUND_ROWS, self._size) and len(self._pieces) > 1:
            self._waiting -= len(self._pieces.pop(0))

    def take(self) -> Observed | None:
        """Full batches that wait, up to ``TOGETHER_ROWS``, one after the other; None: too few samples wait.

        All that wait; of wide ones, of which all columns are looked at, those that lie together already, or the one
        that does not.
        """
        rows = min(self._waiting, max(TOGETHER_ROWS, self._size))
        batches = rows // self._size
        if batches == 0:
            return None
        first = self._pieces[0]
        if not self.is_narrow(first) and first.features.nbytes >= WIDE_BYTES * len(first):
            batches = max(1, min(rows, len(first)) // self._size)
        whole = joined(self._alike(self._cut(batches * self._size)))
        self._taken.append(whole)
        firsts = zip(whole.ids[:: self._size], whole.times_s[:: self._size].tolist(), strict=True)
        self._began.extend([Began(name, time_s, self._size) for name, time_s in firsts])
        return whole

    def _cut(self, wanted: int) -> list[Observed]:
        self._waiting -= wanted
        taken: list[Observed] = []
        while wanted:
            first = self._pieces[0]
            if len(first) <= wanted:
                taken.append(self._pieces.pop(0))
            else:
                taken.append(first.part(0, wanted))
                self._pieces[0] = first.part(wanted, len(first))
            wanted -= len(taken[-1])
        return taken

    def _alike(self, pieces: list[Observed]) -> list[Observed]:
        """Where some are kept whole and others are not, all with the columns that are looked at; a reading that is not
        finite counts as broken then."""
        if not self._columns or len({piece.finite for piece in pieces}) == 1:
            return pieces
        return [piece if piece.finite else narrowed(_marked(piece), self._columns) for piece in pieces]

    def began(self, samples: int | None, later: int = 0) -> Began:
        """Where the latest ``samples`` began, to within a batch; the latest batch, if not told.

        What lies further back than is remembered began with the earliest batch that is.

        Args:
            later: batches that were taken after the latest that is meant.
        """
        latest = min(later, len(self._began) - 1)
        found, reached = self._began[-1 - latest], 0
        for one in islice(reversed(self._began), latest, None):
            found, reached = one, reached + one.rows
            if samples is None or reached >= samples:
                break
        return found


def observed(batch: SampleBatch, served: Served, inputs: Sequence[str]) -> Observed:
    """What was served, as monitors see it; a view where the model has one input.

    Args:
        inputs: the manifest's, in their order; none where no monitor looks at them.
    """
    n, features = len(batch.ids), batch.whole if inputs else {}
    columns = [features[name].reshape(n, -1) for name in inputs] or [np.zeros((n, 0), np.float32)]
    return Observed(
        ids=batch.ids,
        times_s=np.asarray(batch.times, np.float64),
        features=columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1),
        outputs=served.outputs.reshape(n, -1),
        embeddings=None if served.embeddings is None else served.embeddings.reshape(n, -1),
        faulty=batch.faulty,
        finite=batch.screened,
    )


def in_portions(batch: SampleBatch, served: Served, inputs: Sequence[str]) -> list[Observed]:
    """The same as :func:`observed` in pieces, as the features lie in memory: nothing is put side by side."""
    if not batch.portions or not inputs:
        return [observed(batch, served, inputs)]
    pieces: list[Observed] = []
    start = 0
    for portion in batch.portions:
        some = slice(start, start + len(portion[inputs[0]]))
        part = SampleBatch(
            batch.ids[some],
            batch.times[some],
            portion,
            faulty=None if batch.faulty is None else batch.faulty[some],
            screened=batch.screened,
        )
        embeddings = None if served.embeddings is None else served.embeddings[some]
        pieces.append(observed(part, replace(served, outputs=served.outputs[some], embeddings=embeddings), inputs))
        start = some.stop
    return pieces


def of_task(piece: Observed, tasks: Sequence[str | None], first: str | None) -> Observed:
    """Only the samples of the bundle's first task, which monitors without labels are calibrated for.

    Args:
        tasks: n entries, or none where no sample names one.
        first: None: the bundle has no tasks.
    """
    if first is None or all(task in (None, first) for task in tasks):
        return piece
    return _rows_of(piece, np.flatnonzero([task in (None, first) for task in tasks]))


def of_every_task(piece: Observed, answers: TaskAnswers, named: Sequence[str | None], tasks: Sequence[str]) -> Observed:
    """With outputs that mean the same whatever task a sample is of, and without embeddings, which do not.

    Args:
        named: n entries, or none where no sample names one; the first task is that of samples that name none.
        tasks: of the bundle.
    """
    places = [0 if one is None else tasks.index(one) for one in named] or [0] * len(piece)
    outputs = np.empty((len(piece), WIDTH), np.float32)
    for place in set(places):
        rows = np.flatnonzero(np.asarray(places) == place)
        outputs[rows] = answers(place, piece.outputs[rows])
    return replace(piece, outputs=outputs, embeddings=None)


def inputs_alone(piece: Observed) -> Observed:
    """Without outputs and embeddings, as monitors see the samples of several tasks: those have different ones."""
    nothing = np.zeros((len(piece), 0), np.float32)
    return replace(piece, outputs=nothing, embeddings=None)


def _rows_of(whole: Observed, rows: NDArray[np.intp]) -> Observed:
    return Observed(
        ids=[whole.ids[row] for row in rows.tolist()],
        times_s=whole.times_s[rows],
        features=whole.features[rows],
        outputs=whole.outputs[rows],
        embeddings=None if whole.embeddings is None else whole.embeddings[rows],
        faulty=None if whole.faulty is None else whole.faulty[rows],
        finite=whole.finite,
        broken=None if whole.broken is None else whole.broken[rows],
    )


def _marked(piece: Observed) -> Observed:
    """With what is not finite named as broken."""
    faulty = ~np.isfinite(piece.features)
    return replace(piece, faulty=faulty if piece.faulty is None else faulty | piece.faulty, finite=True)


def joined(pieces: Sequence[Observed]) -> Observed:
    """One after the other; embeddings only where all have them, no fault where none is named."""
    if len(pieces) == 1:
        return pieces[0]
    embeddings = [piece.embeddings for piece in pieces if piece.embeddings is not None]
    faulty = broken = None
    if any(piece.faulty is not None for piece in pieces):
        faulty = np.concatenate([_known(piece.faulty, piece.features.shape) for piece in pieces])
    if any(piece.broken is not None for piece in pieces):
        broken = np.concatenate([_known(piece.broken_rows, (len(piece),)) for piece in pieces])
    return Observed(
        ids=list(chain.from_iterable(piece.ids for piece in pieces)),
        times_s=np.concatenate([piece.times_s for piece in pieces]),
        features=np.concatenate([piece.features for piece in pieces]),
        outputs=np.concatenate([piece.outputs for piece in pieces]),
        embeddings=np.concatenate(embeddings) if len(embeddings) == len(pieces) else None,
        faulty=faulty,
        finite=all(piece.finite for piece in pieces),
        broken=broken,
    )


def _known(flags: NDArray[np.bool_] | None, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    return np.zeros(shape, np.bool_) if flags is None else flags

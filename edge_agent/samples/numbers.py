"""Numbers that the store gives out: of insertions and labels' arrivals, and of what served."""

from collections.abc import Callable

from edge_agent.link.database import Database
from edge_agent.samples.tables import ARRIVAL, SAMPLE, last_number, set_number

MODELS_AT_HAND = 256
Model = tuple[str, str, int, str]
"""Bundle, weights, version and cohort."""


class Numbers:
    """Insertion and arrival numbers, none of which is given out twice; usable inside the caller's transactions only."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.load()

    def load(self) -> None:
        """Read what was given out last."""
        self._last = {name: last_number(self._db, name) for name in (SAMPLE, ARRIVAL)}

    def take(self, name: str, count: int) -> int:
        """The first of ``count`` insertion or arrival numbers that were never given out."""
        first = self._last[name] + 1
        self.raise_to(name, self._last[name] + count)
        return first

    def raise_to(self, name: str, floor: int) -> None:
        """Give out no insertion or arrival number up to ``floor`` again."""
        if self._last[name] < floor:
            set_number(self._db, name, floor)
            self._last[name] = floor

    def newest(self) -> int:
        """The highest insertion number given out."""
        return self._last[SAMPLE]


class Models:
    """What served the stored samples, by number; usable inside the caller's transactions only.

    Args:
        used: numbers of the recent samples' models.
    """

    def __init__(self, db: Database, used: Callable[[], set[int]]) -> None:
        self._db = db
        self._used = used
        self.load()

    def __getitem__(self, number: int) -> Model:
        return self._models[number]

    def load(self) -> None:
        """Read them anew."""
        rows = self._db.query("SELECT model, bundle, weights, version, cohort FROM model")
        self._models: dict[int, Model] = {row[0]: (row[1], row[2], row[3], row[4]) for row in rows}

    def number(self, model: Model) -> int:
        """The number of a model, which may be new; where many are known, those without a sample are forgotten."""
        for number, known in reversed(self._models.items()):
            if known == model:
                return number
        if len(self._models) >= MODELS_AT_HAND:
            self._forget()
        self._db.execute("INSERT INTO model (bundle, weights, version, cohort) VALUES (?, ?, ?, ?)", model)
        number = int(self._db.query("SELECT last_insert_rowid()")[0][0])
        self._models[number] = model
        return number

    def _forget(self) -> None:
        """Those of which no sample is left: where a gateway adapts between rounds there are some every hour."""
        used = self._used() | {row[0] for row in self._db.query("SELECT DISTINCT model FROM sample")}
        gone = self._models.keys() - used
        self._db.execute_many("DELETE FROM model WHERE model = ?", [(number,) for number in sorted(gone)])
        self._models = {number: model for number, model in self._models.items() if number in used}

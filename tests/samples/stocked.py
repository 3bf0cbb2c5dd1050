"""A small store with a reservoir, what is put into it, and what it holds then."""

from edge_agent.link.database import Database
from edge_agent.samples.record import Label
from edge_agent.samples.store import SampleStore
from edge_agent.samples.tables import Stage
from tests.samples.inside import lying
from tests.samples.served import CLASSES, INPUTS, batch, predictions

DAY_S = 86_400.0


def store_on(
    db: Database,
    *,
    recent: int = 10,
    reservoir: int = 20,
    unlabelled: int = 5,
    proof_share: float = 0.0,
    classes: int | None = CLASSES,
    seed: int | None = 3,
) -> SampleStore:
    return SampleStore(
        db,
        inputs=INPUTS,
        classes=classes,
        proof_share=proof_share,
        max_samples=recent,
        label_wait_s=DAY_S,
        reservoir_samples=reservoir,
        unlabelled_samples=unlabelled,
        reservoir_seed=seed,
    )


def put(store: SampleStore, numbers: range | list[int], labels: list[int] | list[float], now_s: float = 0.0) -> None:
    """Samples whose labels were there before: none leaves the recent part without its label."""
    store.label([Label(f"s{number}", label) for number, label in zip(numbers, labels, strict=True)], now_s)
    store.add(batch(*numbers), predictions(len(numbers)), now_s)


def held(db: Database, stage: Stage = Stage.KEPT) -> list[tuple[int, float | int]]:
    """Number and label of every sample at a stage, oldest first."""
    return [(int(one.id[1:]), one.label) for one in lying(db) if one.stage == stage and one.label is not None]


def consistent(db: Database) -> None:
    """What a stratum is said to hold is what is there, and all of it lies below its threshold."""
    for stratum, said, threshold in db.query("SELECT stratum, held, threshold FROM stratum"):
        rows = db.query("SELECT draw FROM sample WHERE stage = 1 AND stratum = ?", (stratum,))
        assert len(rows) == said
        assert all(draw < threshold for (draw,) in rows)
    assert db.query("SELECT count(*) FROM sample") == db.query("SELECT count(*) FROM features")

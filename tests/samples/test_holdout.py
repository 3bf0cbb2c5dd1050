from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_agent.drift.rises import LOSS_CAP
from edge_agent.link.database import Database, open_database
from edge_agent.samples.holdout import BUCKETS_AN_EVENT, BUCKETS_KEPT, HoldoutCounts
from edge_agent.samples.record import LabelledRow, Part
from edge_agent.wire.codec import encode
from edge_agent.wire.messages.event import EVENT_CAP_BYTES, CountsEvent


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = open_database(tmp_path / "samples.db", synchronous="NORMAL")
    yield database
    database.close()


def _counts(db: Database) -> HoldoutCounts:
    return HoldoutCounts(db, kind="classification", loss="cross-entropy", bucket_s=10.0)


def _row(
    time_s: float, *, label: int = 0, part: Part = Part.HOLDOUT, weights: str = "a" * 64, logit: float = 2.0
) -> LabelledRow:
    output = np.array([logit, 0.0], dtype=np.float32)
    return LabelledRow(1, "s", time_s, part, output, label, "b" * 64, weights, 3, "root")


def _totals(events: list[CountsEvent]) -> dict[tuple[str, int], tuple[int, int]]:
    return {(e.weights[0], b.bucket): (b.labelled, b.right) for e in events for b in e.buckets}


def test_holdout_rows_are_counted_by_weights_and_bucket(db: Database) -> None:
    counts = _counts(db)
    counts.add(
        [_row(0.0), _row(9.9, label=1), _row(10.0), _row(-0.1), _row(0.0, part=Part.TRAIN), _row(1.0, weights="c" * 64)]
    )
    events = counts.dirty()
    assert _totals(events) == {("a", 0): (2, 1), ("a", 1): (1, 1), ("a", -1): (1, 1), ("c", 0): (1, 1)}
    assert {(e.bundle, e.weights_version, e.cohort, e.bucket_s) for e in events} == {("b" * 64, 3, "root", 10.0)}
    (bucket,) = [b for e in events for b in e.buckets if e.weights[0] == "a" and b.bucket == 0]
    assert bucket.loss_sum == pytest.approx(np.log(1 + np.exp(-2)) + np.log(1 + np.exp(2)))


def test_only_what_changed_since_it_was_sent_is_dirty(db: Database) -> None:
    counts = _counts(db)
    counts.add([_row(0.0), _row(10.0)])
    events = counts.dirty()
    counts.add([_row(10.0)])
    counts.mark_sent(events)
    assert _totals(counts.dirty()) == {("a", 1): (2, 2)}
    counts.mark_sent(counts.dirty())
    assert counts.dirty() == []


def test_totals_survive_a_restart(tmp_path: Path) -> None:
    db = open_database(tmp_path / "samples.db")
    counts = _counts(db)
    counts.add([_row(0.0)])
    counts.mark_sent(counts.dirty())
    db.close()
    db = open_database(tmp_path / "samples.db")
    counts = _counts(db)
    assert counts.dirty() == []
    counts.add([_row(1.0)])
    assert _totals(counts.dirty()) == {("a", 0): (2, 2)}
    db.close()


def test_a_transaction_that_fails_counts_nothing(db: Database) -> None:
    counts = _counts(db)

    def fail_half_way() -> None:
        with db.transaction():
            counts.add([_row(0.0)])
            raise KeyError

    with pytest.raises(KeyError):
        fail_half_way()
    assert counts.dirty() == []


def test_events_stay_under_their_cap_and_buckets_are_bounded(db: Database) -> None:
    counts = _counts(db)
    counts.add([_row(10.0 * number) for number in range(BUCKETS_KEPT + 30)])
    events = counts.dirty()
    assert sum(len(event.buckets) for event in events) == BUCKETS_KEPT
    assert max(len(event.buckets) for event in events) == BUCKETS_AN_EVENT
    assert max(len(encode(event)) for event in events) < EVENT_CAP_BYTES / 2


def test_an_output_that_is_not_finite_is_wrong_with_the_largest_loss(db: Database) -> None:
    counts = _counts(db)
    counts.add([_row(0.0, logit=np.nan)])
    (bucket,) = counts.dirty()[0].buckets
    assert (bucket.labelled, bucket.right, bucket.loss_sum) == (1, 0, LOSS_CAP)


def test_a_regression_has_losses_and_nothing_right(db: Database) -> None:
    counts = HoldoutCounts(db, kind="regression", loss="mse", bucket_s=1.0)
    output = np.array([1.0], dtype=np.float32)
    counts.add([LabelledRow(1, "s", 0.5, Part.HOLDOUT, output, 3.0, "b" * 64, "a" * 64, 1, "root")])
    (bucket,) = counts.dirty()[0].buckets
    assert (bucket.labelled, bucket.right, bucket.loss_sum) == (1, 0, 4.0)

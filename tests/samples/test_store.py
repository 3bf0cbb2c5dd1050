import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.errors import DataError
from edge_agent.link.database import Database, open_database
from edge_agent.samples.join import EARLY_LABELS
from edge_agent.samples.reading import read_evaluation_set, read_training_set
from edge_agent.samples.record import Label, Part, SampleBatch
from edge_agent.samples.store import SampleStore, stored_bytes
from edge_agent.wire.manifest import TensorSpec
from tests.samples.inside import lying
from tests.samples.served import CLASSES, INPUTS, Predictions, batch, predictions

DAY_S = 86_400.0


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = open_database(tmp_path / "samples.db", synchronous="NORMAL")
    yield database
    database.close()


def _store(
    db: Database, *, classes: int | None = CLASSES, proof_share: float = 0.0, max_samples: int = 1000
) -> SampleStore:
    return SampleStore(
        db, inputs=INPUTS, classes=classes, proof_share=proof_share, max_samples=max_samples, label_wait_s=DAY_S
    )


def _add(store: SampleStore, *numbers: int, now_s: float = 0.0, holdout: bool = False) -> None:
    store.add(batch(*numbers, holdouts=[holdout] * len(numbers)), predictions(len(numbers)), now_s)


def _label(store: SampleStore, *numbers: int, value: float = 1, now_s: float = 0.0) -> list[str]:
    return [row.id for row in store.label([Label(f"s{number}", value) for number in numbers], now_s)]


def test_a_joined_row_tells_what_was_served(db: Database) -> None:
    store = _store(db)
    served = Predictions(np.arange(4, dtype=np.float32).reshape(1, 4), "c" * 64, "d" * 64, 7, "c3")
    store.add(batch(5, holdouts=[True]), served, 0.0)
    (row,) = store.label([Label("s5", 2.0)], 1.0)
    assert (row.arrival, row.id, row.time_s, row.part) == (1, "s5", 5.0, Part.HOLDOUT)
    assert (row.bundle, row.weights, row.version, row.cohort) == ("c" * 64, "d" * 64, 7, "c3")
    assert row.output.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert row.output.dtype == np.float32
    assert row.label == 2
    assert isinstance(row.label, int)


def test_labels_join_in_the_order_of_their_arrival(db: Database) -> None:
    store = _store(db)
    _add(store, 1, 2, 3, 4)
    assert _label(store, 3, 1) == ["s3", "s1"]
    assert _label(store, 4) == ["s4"]
    assert [(row.arrival, row.id) for row in store.labelled_since(0, 10)] == [(1, "s3"), (2, "s1"), (3, "s4")]
    assert [row.id for row in store.labelled_since(1, 1)] == ["s1"]
    assert store.labelled_since(3, 10) == []


def test_the_first_valid_label_stands(db: Database) -> None:
    store = _store(db)
    _add(store, 1)
    assert len(store.label([Label("s1", 2), Label("s1", 3)], 0.0)) == 1
    assert store.label([Label("s1", 1)], 0.0) == []
    assert store.labelled_since(0, 10)[0].label == 2
    assert store.counts.repeated_labels == 2


def test_a_label_before_its_sample_waits_and_joins(db: Database) -> None:
    store = _store(db)
    assert _label(store, 2, 1) == []
    assert _label(store, 2, value=3) == []
    joined = store.add(batch(1, 2, 3), predictions(3), 0.0)
    assert [(row.id, row.label) for row in joined] == [("s2", 1), ("s1", 1)]
    assert (store.counts.early_labels, store.counts.repeated_labels) == (0, 1)


def test_early_labels_are_bounded_and_expire(db: Database) -> None:
    store = _store(db)
    _label(store, *range(EARLY_LABELS + 5))
    assert (store.counts.early_labels, store.counts.unmatched_labels) == (EARLY_LABELS, 5)
    _label(store, 1_000_000, now_s=DAY_S + 1)
    assert (store.counts.early_labels, store.counts.unmatched_labels) == (1, EARLY_LABELS + 5)


@pytest.mark.parametrize("value", [-1, CLASSES, 0.5, float("nan"), float("inf"), -float("inf")])
def test_a_label_that_is_no_class_is_refused_and_leaves_the_sample_open(db: Database, value: float) -> None:
    store = _store(db)
    _add(store, 1)
    assert _label(store, 1, value=value) == []
    assert store.counts.refused_labels == store.refused_labels == 1
    assert _label(store, 1, value=0) == ["s1"]


def test_a_regression_takes_every_finite_label_as_a_real_number(db: Database) -> None:
    store = _store(db, classes=None)
    _add(store, 1, 2, 3)
    store.label([Label("s1", 3), Label("s2", -0.5), Label("s3", float("nan")), Label("s3", 1e39)], 0.0)
    labels = store.training_set(None, 10).labels
    assert labels.dtype == np.float64
    assert labels.tolist() == [3.0, -0.5]
    assert store.counts.refused_labels == 2


def test_the_ignored_label_stands_for_none_and_another_may_follow(db: Database) -> None:
    room = {"proof_share": 0.0, "max_samples": 10, "label_wait_s": DAY_S}
    store = SampleStore(db, inputs=INPUTS, classes=CLASSES, ignored_label=-100, **room)  # type: ignore[arg-type]
    _add(store, 1)
    assert _label(store, 1, value=-100) == []
    assert (store.counts.refused_labels, store.counts.labelled) == (0, 0)
    assert _label(store, 1, value=2) == ["s1"]


def test_a_sample_comes_once_however_often_it_is_sent(db: Database) -> None:
    store = _store(db)
    _add(store, 1, 2, 1)
    _label(store, 1)
    _add(store, 1, 3)
    assert (store.counts.samples, store.counts.duplicate_samples) == (3, 2)
    assert _label(store, 1) == []


def test_what_is_held_is_bounded_oldest_first(db: Database) -> None:
    store = _store(db, max_samples=5)
    for number in range(12):
        _add(store, number)
    _label(store, *range(12))
    assert store.training_set(None, 100).ids == ["s7", "s8", "s9", "s10", "s11"]
    assert (store.counts.samples, store.counts.evicted_samples) == (5, 7)
    assert len(lying(db)) == 5


def test_bytes_bound_what_is_held(db: Database) -> None:
    inputs = [TensorSpec(name="x", dtype="float32", shape=["n", 600])]
    store = SampleStore(
        db,
        inputs=inputs,
        classes=None,
        proof_share=0.0,
        max_samples=10_000,
        label_wait_s=DAY_S,
        max_bytes=10 * stored_bytes(2400),
    )
    for number in range(30):
        store.add(SampleBatch([f"s{number}"], [0.0], {"x": np.zeros((1, 600), dtype=np.float32)}), predictions(1), 0.0)
    assert store.counts.samples == 10


def test_a_sample_without_label_is_dropped_after_the_wait(db: Database) -> None:
    store = _store(db)
    _add(store, 1, 2, now_s=0.0)
    _label(store, 1)
    _add(store, 3, now_s=DAY_S + 1)
    assert (store.counts.samples, store.counts.expired_samples) == (2, 1)
    assert _label(store, 2, now_s=DAY_S + 2) == []


def test_a_restart_keeps_everything_and_never_repeats_an_arrival(tmp_path: Path) -> None:
    first = open_database(tmp_path / "samples.db")
    store = _store(first, max_samples=2)
    _add(store, 1, 2)
    _label(store, 1, 2)
    _add(store, 3, 4)
    first.close()
    second = open_database(tmp_path / "samples.db")
    store = _store(second, max_samples=2)
    _label(store, 3)
    assert [(row.arrival, row.id) for row in store.labelled_since(0, 10)] == [(3, "s3")]
    assert store.counts.evicted_samples == 2
    second.close()


def test_after_a_power_cut_the_consumers_cursor_is_not_overtaken(db: Database) -> None:
    store = _store(db)
    _add(store, 1, 2)
    store.resume_after(41)
    _label(store, 1)
    assert [row.arrival for row in store.labelled_since(41, 10)] == [42]
    store.resume_after(5)
    _label(store, 2)
    assert [row.arrival for row in store.labelled_since(42, 10)] == [43]


def test_holdout_and_proof_are_never_trained_on(db: Database) -> None:
    store = _store(db, proof_share=0.5)
    _add(store, *range(40))
    _add(store, *range(40, 50), holdout=True)
    _label(store, *range(50))
    training = set(store.training_set(None, 100).ids)
    evaluation = store.evaluation_set(None, 100)
    assert evaluation.part is Part.HOLDOUT
    assert evaluation.ids == [f"s{number}" for number in range(40, 50)]
    assert 0 < len(training) < 40
    assert not training & set(evaluation.ids)


def test_without_holdout_the_proof_part_is_evaluated(db: Database) -> None:
    store = _store(db, proof_share=0.5)
    _add(store, *range(40))
    _label(store, *range(40))
    evaluation = store.evaluation_set(None, 100)
    assert evaluation.part is Part.PROOF
    assert sorted([*evaluation.ids, *store.training_set(None, 100).ids]) == sorted(f"s{n}" for n in range(40))


def test_groups_stay_together(db: Database) -> None:
    store = _store(db, proof_share=0.5)
    groups: list[str | None] = [f"recording {number // 10}" for number in range(100)]
    store.add(batch(*range(100), groups=groups), predictions(100), 0.0)
    _label(store, *range(100))
    training = {int(name[1:]) // 10 for name in store.training_set(None, 1000).ids}
    proof = {int(name[1:]) // 10 for name in store.evaluation_set(None, 1000).ids}
    assert training
    assert proof
    assert not training & proof


def test_training_reads_from_a_sample_on_newest_first(db: Database) -> None:
    store = _store(db)
    _add(store, *range(10))
    _label(store, *range(9))
    samples = store.training_set("s3", 4)
    assert samples.ids == ["s5", "s6", "s7", "s8"]
    assert samples.features["k"].tolist() == [5, 6, 7, 8]
    assert samples.features["x"][0].tolist() == [[5.0] * 3] * 2
    assert samples.labels.dtype == np.int64
    assert store.trainable_count("s3") == 6
    assert store.trainable_count(None) == 9


def test_the_first_drifted_sample_keeps_its_place_after_eviction(db: Database) -> None:
    store = _store(db, max_samples=5)
    _add(store, *range(5))
    assert store.trainable_count("s3") == 0
    _add(store, *range(5, 12))
    _label(store, *range(12))
    assert store.trainable_count("s3") == 5
    assert store.training_set("s3", 10).ids == [f"s{number}" for number in range(7, 12)]


def test_a_first_drifted_sample_that_was_lost_counts_as_inserted_now(db: Database) -> None:
    store = _store(db)
    _add(store, 1, 2)
    _label(store, 1, 2)
    assert store.training_set("lost", 10).ids == []
    assert store.trainable_count("lost") == 0
    _add(store, 3)
    _label(store, 3)
    assert store.trainable_count("lost") == 1
    assert store.training_set("lost", 10).ids == ["s3"]


def test_features_that_are_not_finite_are_monitored_and_never_trained_on(db: Database) -> None:
    store = _store(db)
    samples = batch(1, 2)
    samples.features["x"][0, 0, 0] = np.nan
    store.add(samples, predictions(2), 0.0)
    assert len(store.label([Label("s1", 1), Label("s2", 1)], 0.0)) == 2
    assert store.training_set(None, 10).ids == ["s2"]


def test_samples_of_other_inputs_are_left_out(db: Database, tmp_path: Path) -> None:
    _add(_store(db), 1)
    inputs = [TensorSpec(name="y", dtype="float32", shape=["n", 1])]
    other = SampleStore(db, inputs=inputs, classes=4, proof_share=0.0, max_samples=10, label_wait_s=DAY_S)
    other.add(SampleBatch(["t"], [0.0], {"y": np.ones((1, 1), dtype=np.float32)}), predictions(1), 0.0)
    other.label([Label("t", 0), Label("s1", 0)], 0.0)
    assert other.training_set(None, 10).ids == ["t"]
    assert read_training_set(tmp_path / "samples.db", INPUTS, from_sample=None, limit=9).ids == ["s1"]


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        (SampleBatch(["a", "b"], [0.0], {"x": np.zeros((2, 2, 3)), "k": np.zeros(2)}), "2 sample ids"),
        (SampleBatch([""], [0.0], {"x": np.zeros((1, 2, 3)), "k": np.zeros(1)}), "1 to 128"),
        (SampleBatch(["a" * 129], [0.0], {"x": np.zeros((1, 2, 3)), "k": np.zeros(1)}), "1 to 128"),
        (SampleBatch(["a"], [np.nan], {"x": np.zeros((1, 2, 3)), "k": np.zeros(1)}), "'a': time"),
        (SampleBatch(["a"], [1e18], {"x": np.zeros((1, 2, 3)), "k": np.zeros(1)}), "'a': time"),
        (SampleBatch(["a"], [0.0], {"x": np.zeros((1, 2, 3))}), "'k' is missing"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_whole(db: Database, samples: SampleBatch, problem: str) -> None:
    store = _store(db)
    with pytest.raises(DataError, match=problem):
        store.add(samples, predictions(len(samples.ids)), 0.0)
    assert store.counts.samples == 0


def test_the_worker_process_reads_while_the_agent_writes(db: Database, tmp_path: Path) -> None:
    store = _store(db)
    _add(store, *range(20))
    _label(store, *range(20))
    program = (
        "import sys; from pathlib import Path\n"
        "from edge_agent.samples.reading import read_training_set\n"
        "from tests.samples.served import INPUTS\n"
        "print(read_training_set(Path(sys.argv[1]), INPUTS, from_sample='s5', limit=3).ids)"
    )
    with db.transaction():
        store.add(batch(20), predictions(1), 0.0)
        _label(store, 20)
        output = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "samples.db")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    assert output.strip() == "['s17', 's18', 's19']"
    assert read_evaluation_set(tmp_path / "samples.db", INPUTS, since_sample=None, limit=5).ids == []


Move = st.tuples(st.sampled_from(["add", "label", "restart"]), st.lists(st.integers(0, 11), min_size=1, max_size=4))


@settings(max_examples=60, deadline=None)
@given(moves=st.lists(Move, max_size=14))
def test_every_order_of_samples_and_labels_joins_each_pair_once(
    moves: list[tuple[str, list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Model: a pair is joined when both have come, at that moment, once; restarts change nothing."""
    path = tmp_path_factory.mktemp("store") / "samples.db"
    db = open_database(path, synchronous="NORMAL")
    store = _store(db)
    added: set[int] = set()
    labelled: list[int] = []
    joined: list[str] = []
    for kind, numbers in moves:
        if kind == "add":
            fresh = [n for n in dict.fromkeys(numbers) if n not in added]
            _add(store, *numbers)
            added.update(fresh)
            joined += [f"s{n}" for n in labelled if n in fresh]
        elif kind == "label":
            fresh = [n for n in dict.fromkeys(numbers) if n not in labelled]
            expected = [f"s{n}" for n in fresh if n in added]
            assert _label(store, *numbers) == expected
            labelled += fresh
            joined += expected
        else:
            db.close()
            db = open_database(path, synchronous="NORMAL")
            store = _store(db)
    rows = store.labelled_since(0, 1000)
    assert [row.id for row in rows] == joined
    assert [row.arrival for row in rows] == list(range(1, len(rows) + 1))
    db.close()


def test_of_models_that_served_only_those_of_stored_samples_are_remembered(db: Database) -> None:
    """A gateway that adapts between rounds serves by other weights every few minutes, for months."""
    store = _store(db, max_samples=10)
    for number in range(600):
        made = Predictions(np.zeros((1, 4), np.float32), weights=f"{number:064x}")
        store.add(batch(number), made, 0.0)
    assert db.query("SELECT count(*) FROM model")[0][0] <= 300
    _label(store, *range(590, 600))
    rows = store.labelled_since(0, 100)
    assert [int(row.weights, 16) for row in rows] == list(range(590, 600))
    again = _store(db, max_samples=10)
    assert [row.weights for row in again.labelled_since(0, 100)] == [row.weights for row in rows]

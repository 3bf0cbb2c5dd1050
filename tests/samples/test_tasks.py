"""Samples of several tasks: parted for serving, stored, trained on and scored each with its own."""

from contextlib import closing
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.drift.losses import sample_losses
from edge_agent.link.database import Database, open_database
from edge_agent.samples.reading import read_evaluation_set, read_training_set
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.samples.scoring import row_losses, row_right
from edge_agent.samples.store import SampleStore
from edge_agent.samples.tables import COMPONENT, TABLES
from edge_agent.samples.tasks import by_task, task_of
from tests.samples.served import CLASSES, INPUTS, Predictions, batch, predictions

TASKS = ("press", "weld")
BEFORE_TASKS = next(place for place, statement in enumerate(TABLES) if "ADD COLUMN task" in statement)


def store_at(path: Path) -> tuple[SampleStore, closing[Database]]:
    db = open_database(path, synchronous="NORMAL")
    store = SampleStore(
        db,
        inputs=INPUTS,
        classes=CLASSES,
        proof_share=0.0,
        max_samples=1000,
        label_wait_s=1e6,
        task_classes={"press": CLASSES, "weld": 2},
    )
    return store, closing(db)


def of_task(task: str | None, *numbers: int, holdout: bool = False) -> SampleBatch:
    whole = batch(*numbers, holdouts=[holdout] * len(numbers))
    return SampleBatch(whole.ids, whole.times, whole.features, whole.groups, whole.holdouts, [task] * len(numbers))


@given(st.lists(st.sampled_from(["press", "weld", "mill", None]), max_size=12))
def test_every_sample_is_in_one_part_or_refused_and_order_is_kept(tasks: list[str | None]) -> None:
    whole = batch(*range(len(tasks)))
    given_batch = SampleBatch(whole.ids, whole.times, whole.features, whole.groups, whole.holdouts, tasks)
    parts, refused = by_task(given_batch, TASKS)
    for part in parts:
        task = task_of(part)
        assert task in TASKS
        assert part.tasks == [task] * len(part.ids)
        assert part.ids == [name for name, own in zip(whole.ids, tasks, strict=True) if (own or "press") == task]
        assert part.features["k"].tolist() == [int(name[1:]) for name in part.ids]
        assert part.times == [float(name[1:]) for name in part.ids]
    assert refused.keys() <= {"mill"}
    assert sorted([*(name for part in parts for name in part.ids), *refused.get("mill", [])]) == sorted(whole.ids)


def test_a_bundle_without_tasks_takes_a_batch_as_it_is() -> None:
    whole = of_task("anything", 1, 2)
    assert by_task(whole, ()) == ([whole], {})


def test_a_set_of_one_task_holds_its_samples_alone(tmp_path: Path) -> None:
    store, db = store_at(tmp_path / "samples.db")
    with db:
        store.add(of_task("press", 1, 2, 3), predictions(3), 0.0)
        store.add(of_task("weld", 4, 5), predictions(2), 0.0)
        store.add(of_task("weld", 6, holdout=True), predictions(1), 0.0)
        store.label([Label(f"s{number}", 1) for number in range(1, 7)], 0.0)
        counts = [store.trainable_count(None, task=task) for task in (None, "press", "weld", "mill")]
        assert counts == [5, 3, 2, 0]
        weld = read_training_set(tmp_path / "samples.db", INPUTS, from_sample=None, limit=9, task="weld")
        assert (weld.ids, weld.tasks) == (["s4", "s5"], ["weld", "weld"])
        everything = read_training_set(tmp_path / "samples.db", INPUTS, from_sample=None, limit=9)
        assert everything.tasks == ["press", "press", "press", "weld", "weld"]
        held = read_evaluation_set(tmp_path / "samples.db", INPUTS, since_sample=None, limit=9, task="weld")
        assert (held.ids, held.tasks) == (["s6"], ["weld"])


def test_a_label_is_judged_by_its_tasks_classes_before_and_after_its_sample(tmp_path: Path) -> None:
    store, db = store_at(tmp_path / "samples.db")
    with db:
        store.label([Label("s1", 3), Label("s2", 3), Label("s9", 4)], 0.0)  # two wait; 4 is no class of any task
        store.add(of_task("weld", 1), predictions(1), 0.0)
        (joined,) = store.add(of_task("press", 2), predictions(1), 0.0)
        assert (joined.id, joined.task, joined.label) == ("s2", "press", 3)
        store.add(of_task("weld", 3), predictions(1), 0.0)
        assert store.label([Label("s3", 2)], 0.0) == []
        (joined,) = store.label([Label("s3", 1)], 0.0)
        assert (joined.id, joined.task, joined.label) == ("s3", "weld", 1)
        assert store.counts.refused_labels == 3


def test_a_store_from_before_tasks_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "samples.db"
    with closing(open_database(path, synchronous="NORMAL")) as old, old.transaction():
        old.define(COMPONENT, TABLES[:BEFORE_TASKS])
        old.execute("INSERT INTO model VALUES (1, ?, ?, 1, 'root')", ("b" * 64, "a" * 64))
        old.execute(
            "INSERT INTO sample VALUES (1, 's1', 1.0, 'train', 1, 1, 0.0, ?, NULL, NULL)",
            (np.zeros(CLASSES, "<f4").tobytes(),),
        )
        old.execute("INSERT INTO sequence VALUES ('sample', 1)")
    store, db = store_at(path)
    with db:
        (joined,) = store.label([Label("s1", 1)], 0.0)
        assert (joined.id, joined.task) == ("s1", None)
        store.add(of_task("weld", 2), predictions(1), 0.0)
        assert [row.task for row in store.label([Label("s2", 1)], 0.0)] == ["weld"]


def test_losses_of_outputs_of_different_widths_are_each_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    wide, narrow = rng.normal(size=(2, 4)).astype("f4"), rng.normal(size=(1, 2)).astype("f4")
    store, db = store_at(tmp_path / "samples.db")
    with db:
        store.add(of_task("press", 1, 3), Predictions(wide), 0.0)
        store.add(of_task("weld", 2), Predictions(narrow), 0.0)
        rows = store.label([Label("s1", 3), Label("s2", 1), Label("s3", 0)], 0.0)
    expected = sample_losses("cross-entropy", wide, np.array([3, 0]))
    alone = sample_losses("cross-entropy", narrow, np.array([1]))
    np.testing.assert_array_equal(row_losses("cross-entropy", rows), [expected[0], alone[0], expected[1]])
    assert row_right("classification", rows).tolist() == [
        wide[0].argmax() == 3,
        narrow[0].argmax() == 1,
        wide[1].argmax() == 0,
    ]

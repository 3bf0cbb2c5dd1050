"""What a disk may do to chunks and files of features: named, counted, and the rest is read."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog

from edge_agent.errors import StorageError
from edge_agent.link.database import Database, open_database
from edge_agent.link.durable import FileOperations
from edge_agent.samples import recent as recent_module
from edge_agent.samples import segments as segments_module
from edge_agent.samples import store as store_module
from edge_agent.samples.reading import read_feature_set, read_training_set
from edge_agent.samples.record import Label
from edge_agent.samples.store import SampleStore
from tests.power_cut import Power, at_every_step, until_the_cut
from tests.samples.inside import lying
from tests.samples.served import CLASSES, INPUTS, batch, predictions

A_CHUNK = 4
DAY_S = 86_400.0
ROW_BYTES = 32


@pytest.fixture(autouse=True)
def _chunks_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_module, "GROWN_SAMPLES", 1)


def store_on(db: Database, *, recent: int = 1000) -> SampleStore:
    return SampleStore(
        db,
        inputs=INPUTS,
        classes=CLASSES,
        proof_share=0.0,
        max_samples=recent,
        label_wait_s=DAY_S,
        reservoir_samples=6,
        reservoir_seed=1,
    )


def filled(path: Path, chunks: int = 3) -> None:
    """Chunks of four labelled samples."""
    with closing(open_database(path)) as db:
        store = store_on(db)
        for first in range(0, chunks * A_CHUNK, A_CHUNK):
            store.add(batch(*range(first, first + A_CHUNK)), predictions(A_CHUNK), 0.0)
        store.label([Label(f"s{n}", n % CLASSES) for n in range(chunks * A_CHUNK)], 0.0)


def flip(column: str, table: str) -> Callable[[Path], None]:
    """One bit of the second chunk's column."""

    def damage(path: Path) -> None:
        with closing(open_database(path)) as db, db.transaction():
            ((blob,),) = db.query(f"SELECT {column} FROM {table} WHERE first = 5")
            flipped = bytes([*blob[:20], blob[20] ^ 4, *blob[21:]])
            db.execute(f"UPDATE {table} SET {column} = ? WHERE first = 5", (flipped,))

    return damage


def features_file(path: Path) -> Path:
    return path.with_suffix(".features") / "1.rows"


def flip_a_feature(path: Path) -> None:
    content = bytearray(features_file(path).read_bytes())
    content[5 * ROW_BYTES] ^= 1
    features_file(path).write_bytes(content)


def cut_the_features(path: Path) -> None:
    features_file(path).write_bytes(features_file(path).read_bytes()[: 2 * A_CHUNK * ROW_BYTES])


@pytest.mark.parametrize(
    "damage",
    [
        flip("served", "chunk"),
        flip("data", "joined"),
        lambda path: _execute(path, "UPDATE chunk SET start = start + 1 WHERE first = 5"),
        lambda path: _execute(path, "DELETE FROM joined WHERE first = 5"),
    ],
    ids=["what was served", "labels", "its place", "no labels"],
)
def test_a_chunk_that_is_not_what_was_written_is_dropped_and_named(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    filled(path)
    damage(path)
    whole = [f"s{n}" for n in (0, 1, 2, 3, 8, 9, 10, 11)]
    assert read_training_set(path, INPUTS, from_sample=None, limit=99).ids == whole
    with closing(open_database(path)) as db, structlog.testing.capture_logs() as logs:
        store = store_on(db)
        assert store.training_set(None, 99).ids == whole
        assert [row.id for row in store.labelled_since(0, 99)] == whole
        assert (store.counts.samples, store.counts.spoilt_samples) == (8, 1)
        assert [(log["event"], log["number"]) for log in logs] == [("chunk_dropped", 5)]
        store.add(batch(4, 50), predictions(2), 0.0)
        assert store.counts.samples == 10


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (flip_a_feature, [4, 5, 6, 7]),
        (cut_the_features, [8, 9, 10, 11]),
        (lambda path: features_file(path).unlink(), list(range(12))),
    ],
    ids=["a bit", "an end", "the file"],
)
def test_lost_features_cost_training_and_nothing_else(
    damage: Callable[[Path], None], lost: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    filled(path)
    damage(path)
    whole = [f"s{n}" for n in range(12) if n not in lost]
    assert read_training_set(path, INPUTS, from_sample=None, limit=99).ids == whole
    assert read_feature_set(path, INPUTS, from_sample="s4", limit=99).ids == [
        name for name in whole if int(name[1:]) > 3
    ]
    with closing(open_database(path)) as db, structlog.testing.capture_logs() as logs:
        store = store_on(db)
        assert {log["event"] for log in logs} == {"features_lost"}
        assert store.training_set(None, 99).ids == whole
        assert store.trainable_count(None) == len(whole)
        assert len(store.labelled_since(0, 99)) == 12
        assert (store.counts.samples, store.counts.spoilt_samples) == (12, len(lost))
        store.add(batch(*range(20, 24)), predictions(4), 0.0)
        store.label([Label("s20", 1)], 0.0)
        assert store.training_set(None, 99).ids == [*whole, "s20"]


def test_spoilt_outputs_cost_the_rows_of_the_monitor(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    filled(path)
    flip("outputs", "chunk")(path)
    with closing(open_database(path)) as db:
        store = store_on(db)
        assert [row.id for row in store.labelled_since(0, 99)] == [f"s{n}" for n in (0, 1, 2, 3, 8, 9, 10, 11)]
        assert len(store.training_set(None, 99).ids) == 12


def test_damage_that_shows_when_samples_leave_costs_them_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    filled(path)
    with closing(open_database(path)) as db:
        store = store_on(db, recent=6)
        flip_a_feature(path)
        for first in range(20, 40, A_CHUNK):
            store.add(batch(*range(first, first + A_CHUNK)), predictions(A_CHUNK), 0.0)
        assert {one.id for one in lying(db) if one.stage == 1} <= {"s0", "s1", "s2", "s3", "s8", "s9", "s10", "s11"}
        held = db.query("SELECT sum(held) FROM stratum")
        assert held == db.query("SELECT count(*) FROM sample WHERE stage = 1")


def test_a_full_disk_refuses_the_batch_and_the_store_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    filled(path)
    whole = FileOperations.write_at

    def half(files: FileOperations, descriptor: int, data: Any, offset: int) -> None:
        whole(files, descriptor, bytes(data)[: len(data) // 2], offset)
        raise OSError(28, "No space left on device")

    with closing(open_database(path)) as db:
        store = store_on(db)
        with monkeypatch.context() as patch:
            patch.setattr(FileOperations, "write_at", half)
            with pytest.raises(StorageError, match="No space"):
                store.add(batch(20, 21), predictions(2), 0.0)
        assert store.counts.samples == 12
        store.add(batch(20, 21), predictions(2), 0.0)
        store.label([Label("s21", 1)], 0.0)
        assert store.training_set("s20", 9).features["k"].tolist() == [21]


def test_files_go_when_their_last_sample_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SEGMENT_BYTES", 8 * ROW_BYTES)
    path = tmp_path / "s.db"
    with closing(open_database(path)) as db:
        store = store_on(db, recent=8)
        for first in range(0, 200, A_CHUNK):
            store.add(batch(*range(first, first + A_CHUNK)), predictions(A_CHUNK), 0.0)
        held = sum(file.stat().st_size for file in features_file(path).parent.iterdir())
        assert held <= 6 * 8 * ROW_BYTES
    orphan = features_file(path).with_name("999.rows")
    orphan.write_bytes(b"x")
    with closing(open_database(path)) as db:
        store = store_on(db, recent=8)
        assert not orphan.exists()
        assert len(store.feature_set(None, 99).ids) == 8


def test_a_power_cut_at_any_step_of_a_full_life_costs_the_last_samples_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "SEGMENT_BYTES", 8 * ROW_BYTES)

    def act(path: Path, k: int) -> Power:
        path.mkdir()
        db = open_database(path / "s.db", synchronous="FULL")
        with until_the_cut(k, path) as power:
            store = store_on(db, recent=8)
            for first in range(0, 32, A_CHUNK):
                store.label([Label(f"s{n}", n % CLASSES) for n in range(first, first + A_CHUNK)], 0.0)
                store.add(batch(*range(first, first + A_CHUNK)), predictions(A_CHUNK), 0.0)
        db.close()
        with closing(open_database(path / "s.db")) as again:
            store = store_on(again, recent=8)
            there = {one.id for one in lying(again)}
            for rows in (
                store.training_set(None, 99),
                read_training_set(path / "s.db", INPUTS, from_sample=None, limit=99),
            ):
                assert set(rows.ids) <= there
                assert rows.features["k"].tolist() == [int(name[1:]) for name in rows.ids]
                assert rows.labels.tolist() == [int(name[1:]) % CLASSES for name in rows.ids]
            store.add(batch(90, 91), predictions(2), 0.0)
            store.label([Label("s91", 1)], 0.0)
            assert store.training_set("s90", 9).ids == ["s91"]
        return power

    assert at_every_step(act, tmp_path) > 30


def _execute(path: Path, statement: str) -> None:
    with closing(open_database(path)) as db, db.transaction():
        db.execute(statement)


def test_a_reader_looks_again_when_a_file_went_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    filled(path)
    whole, looks = segments_module.Segments.read, 0

    def gone_once(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise segments_module.SegmentGone("1.rows is not there")
        return whole(*arguments)

    monkeypatch.setattr(segments_module.Segments, "read", gone_once)
    rows = read_training_set(path, INPUTS, from_sample=None, limit=99)
    np.testing.assert_array_equal(rows.features["k"], np.arange(12))
    assert looks == 5

"""Stores of versions before chunks are converted, whatever cuts the conversion off."""

from contextlib import closing
from pathlib import Path

import numpy as np

from edge_agent.link.database import Database, open_database
from edge_agent.samples.layout import FeatureLayout
from edge_agent.samples.migration import SAMPLES_A_STEP
from edge_agent.samples.record import Label
from edge_agent.samples.store import SampleStore
from edge_agent.samples.tables import COMPONENT, TABLES, Stage
from tests.power_cut import Power, at_every_step, until_the_cut
from tests.samples.inside import Lying, lying
from tests.samples.served import CLASSES, INPUTS

BEFORE_CHUNKS = next(place for place, statement in enumerate(TABLES) if "CREATE TABLE chunk" in statement) - 1
COUNT = 2 * SAMPLES_A_STEP + 40
PASSED = 30
TRAINABLE = 282


def old_store(path: Path) -> None:
    """Samples in rows: some of the reservoir, one in three without a label, one in fifty given up, some missing."""
    with closing(open_database(path)) as db, db.transaction():
        db.define(COMPONENT, TABLES[:BEFORE_CHUNKS])
        db.execute("INSERT INTO layout (digest) VALUES (?), ('another')", (FeatureLayout(INPUTS).digest,))
        db.execute("INSERT INTO model (bundle, weights, version, cohort) VALUES ('b', 'w', 1, 'r'), ('b', 'v', 2, 'r')")
        db.execute(
            f"INSERT INTO sequence VALUES ('sample', {COUNT}), ('arrival', {COUNT}), ('passed', {PASSED}),"
            " ('reservoir_salt', 4)"
        )
        db.execute("INSERT INTO stratum VALUES (1, 'train', 1, '', 1, 30, 6, 99)")
        for seq in range(5, COUNT + 1):
            _insert(db, seq)


def _insert(db: Database, seq: int) -> None:
    kept = seq <= PASSED
    if (kept and seq % 5) or seq % 97 == 0:
        return
    labelled = seq % 3 != 0 or kept
    stage = Stage.KEPT if kept else Stage.UNLABELLED if seq % 50 == 0 and not labelled else Stage.RECENT
    width = 4 if seq < 300 else 2
    db.execute(
        "INSERT INTO sample (seq, id, time_s, part, layout, model, added_s, output, label, arrival, task, stage,"
        " stratum, draw) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            seq,
            f"s{seq}",
            seq / 2,
            "proof" if seq % 11 == 0 and not kept else "train",
            1 + (seq > 500),
            1 + (seq > 200),
            seq / 4,
            np.full(width, seq, "<f4").tobytes(),
            1 if labelled else None,
            COUNT - seq + 1 if labelled else None,
            "weld" if seq > 400 else None,
            int(stage),
            1 if kept else None,
            seq if kept else None,
        ),
    )
    row = np.full(6, seq, "<f4").tobytes() + np.int64(seq).tobytes()
    db.execute("INSERT INTO features VALUES (?, ?)", (seq, row))


def rows_of(path: Path) -> list[Lying]:
    with closing(open_database(path)) as db:
        return lying_in_rows(db)


def lying_in_rows(db: Database) -> list[Lying]:
    rows = db.query("SELECT seq, id, part, stage, label FROM sample ORDER BY seq")
    return [Lying(*row) for row in rows]


def store_on(db: Database) -> SampleStore:
    return SampleStore(
        db, inputs=INPUTS, classes=CLASSES, proof_share=0.1, max_samples=10_000, label_wait_s=1e6, reservoir_samples=20
    )


def test_everything_is_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    old_store(path)
    before = rows_of(path)
    size_bytes = path.stat().st_size
    with closing(open_database(path)) as db:
        store = store_on(db)
        assert lying(db) == before
        assert {row[0] for row in db.query("SELECT stage FROM sample")} == {Stage.KEPT}
        rows = store.labelled_since(0, 9999)
        assert [row.arrival for row in rows] == sorted(row.arrival for row in rows)
        assert {row.id for row in rows} == {one.id for one in before if one.label is not None}
        for row in rows:
            seq = int(row.id[1:])
            assert (row.time_s, row.task, row.version) == (seq / 2, "weld" if seq > 400 else None, 1 + (seq > 200))
            assert row.output.tolist() == [seq] * (4 if seq < 300 else 2)
        samples = store.training_set(None, 9999)
        assert samples.features["k"].tolist() == [int(name[1:]) for name in samples.ids]
        assert samples.ids == [
            one.id
            for one in before
            if one.part == "train" and one.stage == Stage.RECENT and one.label is not None and one.seq <= 500
        ]
        assert [row.id for row in store.label([Label("s150", 2), Label("s33", 0)], 0.0)] == ["s150", "s33"]
    assert path.stat().st_size < size_bytes


def test_a_power_cut_anywhere_in_the_conversion_loses_nothing(tmp_path: Path) -> None:
    def act(path: Path, k: int) -> Power:
        path.mkdir()
        old_store(path / "s.db")
        before = rows_of(path / "s.db")
        db = open_database(path / "s.db", synchronous="FULL")
        with until_the_cut(k, path) as power:
            store_on(db)
        db.close()
        with closing(open_database(path / "s.db")) as again:
            store = store_on(again)
            assert lying(again) == before
            assert (len(store.training_set(None, 9999).ids), store.counts.spoilt_samples) == (TRAINABLE, 0)
        return power

    assert at_every_step(act, tmp_path) > 8

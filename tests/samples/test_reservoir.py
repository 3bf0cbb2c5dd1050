"""The part of the store that stands for the whole past."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from edge_agent.link.database import Database, open_database
from edge_agent.samples.layout import FeatureLayout
from edge_agent.samples.older import Older
from edge_agent.samples.record import Label, Part
from edge_agent.samples.reservoir import DRAWS, TASKS_PARTED, Reservoir
from edge_agent.samples.selection import Mixture
from edge_agent.samples.split import below_share, hashes_of
from edge_agent.samples.tables import Stage
from tests.samples.inside import lying
from tests.samples.served import CLASSES, INPUTS, batch, predictions
from tests.samples.stocked import DAY_S, consistent, held, put, store_on


def test_every_sample_of_the_past_is_kept_with_the_same_chance(tmp_path: Path) -> None:
    """Chi-square over ten spans of the past at level 1e-4, 25 reservoirs of 20 out of 200: a fixed set of seeds."""
    spans: Counter[int] = Counter()
    for seed in range(25):
        with closing(open_database(tmp_path / f"{seed}.db", synchronous="NORMAL")) as db:
            store = store_on(db, recent=1, seed=seed)
            for start in range(0, 201, 67):
                put(store, range(start, start + 67), [0] * 67)
            kept = [number for number, _ in held(db)]
            assert len(kept) == 20
            spans.update(number // 20 for number in kept if number < 200)
    assert stats.chisquare([spans[span] for span in range(10)]).pvalue > 1e-4


def test_a_rare_class_is_not_crowded_out_and_the_others_share_the_rest(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as db:
        store = store_on(db, recent=1, reservoir=30)
        rare = {50: 3, 300: 3, 450: 3}
        for start in range(0, 600, 50):
            put(store, range(start, start + 50), [rare.get(n, n % 2) for n in range(start, start + 50)])
        classes = Counter(label for _, label in held(db))
        assert classes[3] == 3
        assert sorted((classes[0], classes[1])) == [13, 14]
        consistent(db)


def test_a_chunk_leaves_the_recent_part_whole_where_it_is_a_small_share_of_it(tmp_path: Path) -> None:
    """Its features are read once then, not at every sample that leaves; what was offered is the same."""
    with closing(open_database(tmp_path / "s.db")) as db:
        store = store_on(db, recent=640, reservoir=50)
        for start in range(0, 640, 80):
            put(store, range(start, start + 80), [0] * 80)
        assert store.counts.evicted_samples == 0
        put(store, [640], [0])
        assert store.counts.evicted_samples == 80
        assert db.query("SELECT seen, held FROM stratum") == [(80, 50)]
        consistent(db)
    with closing(open_database(tmp_path / "large.db")) as db:
        store = store_on(db, recent=639, reservoir=50)
        for start in range(0, 640, 80):
            put(store, range(start, start + 80), [0] * 80)
        assert store.counts.evicted_samples == 1, "a chunk of more than a share of the recent part leaves row by row"


def test_strata_are_read_anew_after_a_transaction_that_was_rolled_back(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as db:
        store = store_on(db, recent=1, reservoir=10)
        put(store, range(40), [n % 2 for n in range(40)])
        before = db.query("SELECT * FROM stratum"), held(db)

        def given_up() -> None:
            with db.transaction():
                put(store, range(40, 90), [n % CLASSES for n in range(50)])
                raise RuntimeError("given up")

        with pytest.raises(RuntimeError, match="given up"):
            given_up()
        assert (db.query("SELECT * FROM stratum"), held(db)) == before
        put(store, range(40, 90), [n % CLASSES for n in range(50)])
        consistent(db)
        with closing(open_database(tmp_path / "o.db")) as other:
            whole = store_on(other, recent=1, reservoir=10)
            put(whole, range(40), [n % 2 for n in range(40)])
            put(whole, range(40, 90), [n % CLASSES for n in range(50)])
            assert held(other) == held(db)


def test_targets_of_a_regression_are_one_stratum(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as db:
        store = store_on(db, recent=1, classes=None)
        put(store, range(100), [n / 7 for n in range(100)])
        put(store, [100], [0.0])
        assert len(held(db)) == 20
        assert db.query("SELECT count(*) FROM stratum") == [(1,)]


def test_proof_samples_have_their_share_and_training_never_reads_them(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as db:
        store = store_on(db, recent=1, proof_share=0.25)
        for start in range(0, 400, 100):
            put(store, range(start, start + 100), [n % CLASSES for n in range(start, start + 100)])
        parts: dict[str, int] = dict(db.query("SELECT part, count(*) FROM sample WHERE stage = 1 GROUP BY part"))
        assert parts == {Part.TRAIN: 15, Part.PROOF: 5}
        ids = {one.id for one in lying(db) if one.part == Part.PROOF}
        assert not ids & set(store.training_set(None, 100, mixture=Mixture(0.9)).ids)


@settings(max_examples=25, deadline=None)
@given(
    moves=st.lists(
        st.tuples(st.integers(1, 8), st.integers(0, 255), st.booleans(), st.integers(0, 8)), min_size=1, max_size=12
    )
)
def test_any_history_leaves_the_store_within_its_bounds_and_its_books_right(
    moves: list[tuple[int, int, bool, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Labels that come, come late or never; restarts with another room."""
    path = tmp_path_factory.mktemp("store") / "s.db"
    db = open_database(path, synchronous="NORMAL")
    store, number, waiting, now_s, size = store_on(db, recent=6, reservoir=8), 0, list[int](), 0.0, 8
    for count, come, restart, size_then in moves:
        numbers = list(range(number, number + count))
        number, now_s = number + count, now_s + DAY_S / 2
        store.add(batch(*numbers), predictions(count), now_s)
        now = [n for place, n in enumerate(numbers) if come >> place & 1]
        store.label([Label(f"s{n}", n % CLASSES) for n in [*now, *waiting]], now_s)
        waiting = [n for n in numbers if n not in now]
        if restart:
            size = size_then
            store = store_on(db, recent=6, reservoir=size)
        consistent(db)
        assert len(held(db)) <= size
        assert sum(one.stage == Stage.UNLABELLED and one.label is None for one in lying(db)) <= 5
    db.close()


def test_a_late_label_finds_a_sample_that_was_given_up_and_it_is_recent_again(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as db:
        store = store_on(db)
        store.add(batch(1, 2), predictions(2), 0.0)
        store.add(batch(3), predictions(1), 2 * DAY_S)
        assert store.counts.unlabelled == 2
        assert [row.id for row in store.label([Label("s1", 1)], 2 * DAY_S)] == ["s1"]
        store.add(batch(4), predictions(1), 2 * DAY_S)
        assert held(db, Stage.RECENT)[0] == (1, 1)
        assert store.training_set(None, 10).ids == ["s1"]
        assert store.feature_set(None, 10).ids == ["s1", "s2", "s3", "s4"]


def test_only_the_newest_unlabelled_ones_of_the_train_part_stay(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as db:
        store = store_on(db, recent=3, proof_share=0.3)
        for start in range(0, 60, 10):
            store.add(batch(*range(start, start + 10)), predictions(10), 0.0)
        assert store.counts.unlabelled == 5
        assert {one.part for one in lying(db) if one.stage == Stage.UNLABELLED} == {"train"}


def test_a_database_of_the_version_before_keeps_its_samples(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as db:
        db.define("samples", OLD_TABLES)
        with db.transaction():
            db.execute("INSERT INTO layout (digest) VALUES (?)", (FeatureLayout(INPUTS).digest,))
            db.execute("INSERT INTO model (bundle, weights, version, cohort) VALUES ('b', 'w', 1, 'root')")
            db.execute("INSERT INTO sequence VALUES ('sample', 30), ('arrival', 30)")
            row = np.zeros(6, "<f4").tobytes() + np.zeros(1, "<i8").tobytes()
            for seq in range(1, 31):
                db.execute(
                    "INSERT INTO sample VALUES (?, ?, 0.0, 'train', 1, 1, 0.0, ?, 1, ?)",
                    (seq, f"s{seq}", np.zeros(4, "<f4").tobytes(), seq),
                )
                db.execute("INSERT INTO features VALUES (?, ?)", (seq, row))
        store = store_on(db)
        assert store.training_set(None, 100).ids == [f"s{n}" for n in range(1, 31)]
        put(store, [31], [1])
        assert store.training_set(None, 100).ids == [f"s{n}" for n in range(22, 32)]
        assert store.counts.reservoir == 20
        consistent(db)


OLD_TABLES = (
    "CREATE TABLE sequence (name TEXT PRIMARY KEY, last INTEGER NOT NULL)",
    "CREATE TABLE layout (layout INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE)",
    """CREATE TABLE model (model INTEGER PRIMARY KEY,
        bundle TEXT NOT NULL, weights TEXT NOT NULL, version INTEGER NOT NULL, cohort TEXT NOT NULL,
        UNIQUE (bundle, weights, version, cohort))""",
    """CREATE TABLE sample (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, time_s REAL NOT NULL, part TEXT NOT NULL,
        layout INTEGER NOT NULL, model INTEGER NOT NULL, added_s REAL NOT NULL, output BLOB NOT NULL, label,
        arrival INTEGER)""",
    """CREATE TABLE features (
        seq INTEGER PRIMARY KEY REFERENCES sample (seq) ON DELETE CASCADE, data BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX sample_arrival ON sample (arrival) WHERE arrival IS NOT NULL",
    "CREATE INDEX sample_pending ON sample (added_s) WHERE arrival IS NULL",
    "CREATE INDEX sample_usable ON sample (part, layout, seq) WHERE arrival IS NOT NULL",
    "CREATE TABLE early_label (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, value, added_s REAL NOT NULL)",
    "CREATE TABLE origin (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL)",
)


def test_an_insertion_costs_the_same_however_many_samples_are_held(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "samples.db", synchronous="NORMAL")) as db:
        store = store_on(db, recent=4000, reservoir=40)
        steps = []
        for first, many in ((0, 200), (200, 200), (400, 3400)):
            put(store, range(first, first + many), [number % CLASSES for number in range(many)])
            steps.append(_steps(db, lambda number=first: put(store, [10_000 + number], [1])))  # type: ignore[misc]
        assert steps[2] < 2 * steps[1], steps


def test_a_plant_that_names_ever_new_tasks_gets_a_bounded_number_of_strata(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "samples.db", synchronous="NORMAL")) as db:
        store = store_on(db, reservoir=30)
        for first in range(0, 400, 50):
            numbers = range(first, first + 50)
            store.label([Label(f"s{number}", number % 2) for number in numbers], 0.0)
            named = replace(batch(*numbers), tasks=[f"task{number}" for number in numbers])
            store.add(named, predictions(50), 0.0)
        assert db.query("SELECT count(*) FROM stratum")[0][0] == TASKS_PARTED + 2
        assert len(held(db)) == 30
        consistent(db)


def _steps(db: Database, act: Callable[[], None]) -> int:
    """How many instructions SQLite carries out for it, in tens."""
    count = 0

    def counted() -> int:
        nonlocal count
        count += 1
        return 0

    db._connection.set_progress_handler(counted, 10)
    act()
    db._connection.set_progress_handler(None, 0)
    return count


@pytest.mark.parametrize("part", ["train", "proof"])
def test_draws_are_even_in_each_part_and_those_of_two_gateways_independent(tmp_path: Path, part: str) -> None:
    """Ids that follow each other, whose hashes have parted them by their lowest; at a level of 1e-3 for all four."""
    hashes = hashes_of([f"gw-{number:07d}" for number in range(40_000)])
    hashes = hashes[below_share(hashes, 0.1) == (part == "proof")]
    draws = []
    for seed in (1, 2):
        with closing(open_database(tmp_path / f"{seed}.db")) as db:
            store_on(db, seed=seed)
            with db.transaction():
                reservoir = Reservoir(db, Older(db), capacity=0, proof_share=0.1, layout=1, classed=True, seed=seed)
                draws.append(reservoir.draws(hashes).astype(np.float64) / DRAWS)
    for some in draws:
        assert stats.kstest(some, "uniform").pvalue > 1e-3 / 4
    assert stats.spearmanr(draws[0], draws[1]).pvalue > 1e-3 / 4
    neighbours = stats.spearmanr(draws[0][1:], draws[0][:-1])
    assert neighbours.pvalue > 1e-3 / 4

"""The store against the plainest form of what it means, over any history."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.link.database import Database, open_database
from edge_agent.samples import recent as recent_module
from edge_agent.samples.record import ID_CHARS, Label, LabelledRow, Part, are_sample_ids, is_sample_id
from edge_agent.samples.split import part_of, proof_rows
from edge_agent.samples.store import SampleStore
from tests.samples.inside import lying
from tests.samples.oracle import KEPT, UNLABELLED, Oracle
from tests.samples.served import CLASSES, INPUTS, batch, predictions

ROOM = {"recent": 7, "reservoir": 5, "unlabelled": 3}
WAIT_S = 10.0
PROOF_SHARE = 0.3
SEED = 5
Numbers = st.lists(st.integers(0, 60), min_size=1, max_size=9)
Few = st.sampled_from([0, 0, 0, 0b10010, 2**9 - 1])
Move = st.one_of(
    st.tuples(st.just("add"), Numbers, Few, Few),
    st.tuples(st.just("label"), st.lists(st.tuples(st.integers(0, 60), st.integers(-1, CLASSES)), max_size=9)),
    st.tuples(st.sampled_from(["restart", "undo", "wait"])),
)


class Pair:
    """A store and the oracle, told the same."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = open_database(path, synchronous="NORMAL")
        self.store = self._store(self.db)
        self.oracle = Oracle(
            classes=CLASSES,
            proof_share=PROOF_SHARE,
            recent=ROOM["recent"],
            reservoir=ROOM["reservoir"],
            unlabelled=ROOM["unlabelled"],
            label_wait_s=WAIT_S,
            seed=SEED,
        )
        self.rows: list[LabelledRow] = []
        self.now_s = 0.0

    def _store(self, db: Database) -> SampleStore:
        return SampleStore(
            db,
            inputs=INPUTS,
            classes=CLASSES,
            proof_share=PROOF_SHARE,
            max_samples=ROOM["recent"],
            label_wait_s=WAIT_S,
            reservoir_samples=ROOM["reservoir"],
            unlabelled_samples=ROOM["unlabelled"],
            reservoir_seed=SEED,
        )

    def add(self, numbers: list[int], holdouts: int, broken: int) -> None:
        """Samples; bits say which are holdout, and which have a feature that is not finite."""
        apart = [bool(holdouts >> place & 1) for place in range(len(numbers))]
        finite = [not broken >> place & 1 for place in range(len(numbers))]
        samples = batch(*numbers, holdouts=apart)
        samples.features["x"][~np.array(finite)] = np.nan
        rows = self.store.add(samples, predictions(len(numbers)), self.now_s)
        assert [row.id for row in rows] == self.oracle.add(samples.ids, apart, finite, self.now_s)
        self.rows += rows

    def label(self, labels: list[tuple[int, int]]) -> None:
        """Labels, some of which are no class."""
        rows = self.store.label([Label(f"s{number}", value) for number, value in labels], self.now_s)
        assert [row.id for row in rows] == self.oracle.label([(f"s{n}", value) for n, value in labels], self.now_s)
        self.rows += rows

    def undo(self) -> None:
        """A transaction of samples and labels that the disk refuses at its end leaves nothing behind."""
        with pytest.raises(ZeroDivisionError):
            self._refused()

    def _refused(self) -> None:
        with self.db.transaction():
            self.store.add(batch(*range(70, 75)), predictions(5), self.now_s)
            self.store.label([Label(f"s{n}", 1) for n in range(75)], self.now_s)
            raise ZeroDivisionError

    def restart(self) -> None:
        self.db.close()
        self.db = open_database(self.path, synchronous="NORMAL")
        self.store = self._store(self.db)

    def agree(self) -> None:
        """Everything that can be asked."""
        store, oracle, counts = self.store, self.oracle, self.store.counts
        assert [row.arrival for row in self.rows] == list(range(1, len(self.rows) + 1))
        assert {(one.id, one.seq, one.label, one.part) for one in lying(self.db)} == {
            (one.id, one.seq, one.label, one.part.value) for one in oracle.held
        }
        assert counts.samples == len(oracle.held)
        assert counts.labelled == sum(one.label is not None for one in oracle.held)
        assert (counts.reservoir, counts.unlabelled) == (len(oracle.stage(KEPT)), len(oracle.stage(UNLABELLED)))
        assert (counts.early_labels, counts.unmatched_labels) == (len(oracle.early), oracle.unmatched)
        assert (counts.duplicate_samples, counts.repeated_labels) == (oracle.duplicates, oracle.repeated)
        assert (counts.refused_labels, counts.spoilt_samples) == (oracle.refused, 0)
        assert (counts.expired_samples, counts.evicted_samples) == (oracle.expired, oracle.evicted)
        usable = oracle.usable(Part.TRAIN)
        assert store.training_set(None, 100).ids == usable
        assert store.trainable_count(None) == len(usable)
        if usable:
            assert store.trainable_count(usable[-1]) == 1
        evaluated = oracle.usable(Part.HOLDOUT) or oracle.usable(Part.PROOF)
        assert store.evaluation_set(None, 100).ids == evaluated
        features = store.feature_set(None, 100)
        train = [one for one in oracle.held if one.part is Part.TRAIN and one.stage != KEPT]
        assert features.ids == [one.id for one in sorted(train, key=lambda one: one.seq)]
        assert features.features["k"].tolist() == [int(name[1:]) for name in features.ids]
        labelled = {one.arrival: (one.id, one.label) for one in oracle.held if one.arrival}
        found = store.labelled_since(0, 1000)
        assert [row.arrival for row in found] == sorted(labelled)
        assert all(labelled[row.arrival] == (row.id, row.label) for row in found)


@pytest.mark.parametrize("grown", [1, recent_module.GROWN_SAMPLES])
def test_any_history_leaves_what_the_rules_say(grown: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Also where every commit is a chunk of its own."""

    @settings(max_examples=40, deadline=None)
    @given(moves=st.lists(Move, max_size=14))
    def agree(moves: list[tuple[object, ...]]) -> None:
        pair = Pair(tmp_path_factory.mktemp("pair") / "s.db")
        for kind, *arguments in moves:
            if kind == "wait":
                pair.now_s += WAIT_S * 0.6
            else:
                getattr(pair, str(kind))(*arguments)
            pair.agree()
        pair.db.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent_module, "GROWN_SAMPLES", grown)
        agree()


@given(st.lists(st.text(max_size=ID_CHARS + 2), max_size=4))
def test_ids_are_judged_together_as_each_alone(names: list[str]) -> None:
    assert are_sample_ids(names) == all(map(is_sample_id, names))


@given(st.lists(st.text(max_size=8), max_size=9), st.floats(0, 0.99))
def test_parts_are_told_together_as_each_alone(names: list[str], share: float) -> None:
    parts = [part_of(name, None, holdout=False, proof_share=share) for name in names]
    assert [part is Part.PROOF for part in parts] == proof_rows(names, share).tolist()

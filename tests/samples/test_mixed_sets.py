"""Sets that are drawn from before a drift and from after it, for training and for judging."""

from collections import Counter
from contextlib import closing
from pathlib import Path

from edge_agent.link.database import open_database
from edge_agent.samples.reading import read_evaluation_set
from edge_agent.samples.record import Label, Part
from edge_agent.samples.selection import Mixture
from tests.samples.inside import lying
from tests.samples.served import CLASSES, INPUTS, batch, predictions
from tests.samples.stocked import put, store_on


def test_a_set_takes_its_share_from_before_the_drift_and_the_rest_from_after(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as db:
        store = store_on(db, recent=40, reservoir=40)
        for start in range(0, 120, 10):
            put(store, range(start, start + 10), [n % CLASSES for n in range(start, start + 10)])
        plain = store.training_set("s100", 50)
        assert plain.ids == [f"s{n}" for n in range(100, 120)]
        assert plain.rehearsed == 0
        mixed = store.training_set("s100", 50, mixture=Mixture(0.5))
        assert mixed.rehearsed == 20
        assert all(int(name[1:]) < 100 for name in mixed.ids[:20])
        assert mixed.ids[20:] == plain.ids
        assert set(Counter(mixed.labels[:20].tolist()).values()) == {5}
        assert store.training_set("s100", 50, mixture=Mixture(0.5)).ids == mixed.ids
        assert store.training_set("s100", 50, mixture=Mixture(0.5, seed=1)).ids != mixed.ids
        short = store.training_set("s100", 10, mixture=Mixture(0.5))
        assert (len(short.ids), short.rehearsed) == (10, 5)
        assert store.training_set("unknown", 10, mixture=Mixture(0.5)).ids == []
        assert store.trainable_count("s100") == 20


def test_with_rehearsal_old_proof_samples_are_judged_on_too(tmp_path: Path) -> None:
    mixture = Mixture(0.5)
    with closing(open_database(tmp_path / "s.db")) as db:
        store = store_on(db, recent=40, reservoir=40, proof_share=0.5)
        for start in range(0, 120, 10):
            put(store, range(start, start + 10), [n % CLASSES for n in range(start, start + 10)])
        path = tmp_path / "s.db"
        plain = read_evaluation_set(path, INPUTS, since_sample="s100", limit=50)
        mixed = read_evaluation_set(path, INPUTS, since_sample="s100", limit=50, mixture=mixture)
        assert (plain.part, plain.rehearsed, mixed.rehearsed) == (Part.PROOF, 0, len(plain.ids))
        assert mixed.ids[mixed.rehearsed :] == plain.ids
        parts = {one.id: one.part for one in lying(db)}
        assert {parts[name] for name in mixed.ids} == {Part.PROOF}
        store.add(batch(200, 201, holdouts=[True, True]), predictions(2), 0.0)
        store.label([Label("s200", 0), Label("s201", 1)], 0.0)
        held_out = read_evaluation_set(path, INPUTS, since_sample="s100", limit=50, mixture=mixture)
        assert (held_out.ids[2:], held_out.rehearsed) == (["s200", "s201"], 2)
        assert {parts[name] for name in held_out.ids[:2]} == {Part.PROOF}
        assert not set(held_out.ids) & set(store.training_set(None, 200, mixture=mixture).ids)


def test_a_balanced_set_has_the_newest_of_every_class(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as db:
        store = store_on(db, recent=100)
        put(store, range(50), [1 if n in (3, 30, 31) else 0 for n in range(50)])
        ids = store.training_set(None, 8, mixture=Mixture(balanced=True)).ids
        assert ids == ["s3", "s30", "s31", "s45", "s46", "s47", "s48", "s49"]

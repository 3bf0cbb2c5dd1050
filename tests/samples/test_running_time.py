from contextlib import closing
from pathlib import Path

import pytest

from edge_agent.link.database import open_database
from edge_agent.samples.record import Label
from edge_agent.samples.running_time import RunningTime
from edge_agent.samples.store import SampleStore
from tests.samples.inside import lying
from tests.samples.served import INPUTS, batch, predictions

WAIT_S = 100.0


def _store(path: Path) -> tuple[SampleStore, RunningTime, list[float]]:
    db = open_database(path)
    store = SampleStore(db, inputs=INPUTS, classes=4, proof_share=0.0, max_samples=100, label_wait_s=WAIT_S)
    now = [5.0]
    return store, RunningTime(db, monotonic_s=lambda: now[0]), now


def test_it_goes_on_from_the_newest_sample_over_restarts_of_the_machine(tmp_path: Path) -> None:
    store, running, now = _store(tmp_path / "s.db")
    assert running.now_s() == 0.0
    now[0] += 60.0
    store.add(batch(1), predictions(1), running.now_s())
    again, running, now = _store(tmp_path / "s.db")
    assert running.now_s() == 60.0
    now[0] += WAIT_S + 1
    again.add(batch(2), predictions(1), running.now_s())
    assert (again.counts.samples, again.counts.expired_samples) == (1, 1)


@pytest.mark.parametrize("wall_s", [1.7e9, 4e9], ids=["stamped by a clock", "by one that had jumped to 2096"])
def test_samples_stamped_by_the_wall_clock_of_a_version_before_wait_on(tmp_path: Path, wall_s: float) -> None:
    store, _, _ = _store(tmp_path / "s.db")
    store.add(batch(1, 2), predictions(2), wall_s)
    store.label([Label("early", 1)], wall_s)
    again, running, now = _store(tmp_path / "s.db")
    assert running.now_s() == wall_s
    again.add(batch(3), predictions(1), running.now_s())
    assert again.counts.samples == 3
    now[0] += WAIT_S + 1
    again.label([], running.now_s())
    again.add(batch(4), predictions(1), running.now_s())
    assert (again.counts.samples, again.counts.early_labels) == (1, 0)
    with closing(open_database(tmp_path / "s.db")) as db:
        assert len(lying(db)) == 1

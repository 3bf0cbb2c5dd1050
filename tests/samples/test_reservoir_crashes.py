"""The reservoir after a power cut and a kill."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from edge_agent.link.database import find_damage, open_database
from edge_agent.samples.selection import Mixture
from tests.power_cut import Power, at_every_step, until_the_cut
from tests.samples.stocked import consistent, held, put, store_on


def test_a_power_cut_at_any_commit_leaves_the_books_right(tmp_path: Path) -> None:
    def act(path: Path, k: int) -> Power:
        path.mkdir()
        db = open_database(path / "s.db", synchronous="FULL")
        with until_the_cut(k, path) as power:
            store = store_on(db, recent=4, reservoir=6)
            for start in range(0, 24, 4):
                put(store, range(start, start + 4), [n % 3 for n in range(start, start + 4)])
        db.close()
        with closing(open_database(path / "s.db")) as again:
            store = store_on(again, recent=4, reservoir=6)
            put(store, range(100, 104), [0] * 4)
            consistent(again)
            assert len(held(again)) <= 6
        return power

    assert at_every_step(act, tmp_path) > 12


def test_a_killed_writer_leaves_a_sound_store(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "s.db")], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"full\n"
    time.sleep(0.2)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait(10)
    writer.stdout.close()
    assert find_damage(tmp_path / "s.db") is None
    with closing(open_database(tmp_path / "s.db")) as db:
        consistent(db)
        store = store_on(db, recent=20, reservoir=30)
        assert store.counts.reservoir == 30
        assert len(store.training_set(None, 50, mixture=Mixture(0.5)).ids) == 40


WRITER = """
import itertools, sys
from pathlib import Path
from edge_agent.link.database import open_database
from tests.samples.stocked import put, store_on
store = store_on(open_database(Path(sys.argv[1]), synchronous="NORMAL"), recent=20, reservoir=30)
for start in itertools.count(0, 8):
    put(store, range(start, start + 8), [n % 4 for n in range(start, start + 8)])
    if start == 400:
        print("full", flush=True)
"""

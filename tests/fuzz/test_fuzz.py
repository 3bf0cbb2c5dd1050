"""The fuzzer finds what it is for, and its inputs can be made again."""

import json
import os
import random
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path

import pytest

from tests.fuzz.mutation import MUTATIONS
from tests.fuzz.parent import outcome_of
from tests.fuzz.run import input_of
from tests.fuzz.target import Target
from tests.fuzz.wire import targets

SEEDS = [b'{"a": [1, 2, {"b": "x"}]}', b"bytes"]


def _fragile(data: bytes) -> str:
    if b"null" in data:
        raise KeyError("null")
    if b"[" in data:
        raise ValueError("list")
    return "fine"


def test_the_same_input_comes_of_the_same_seed_target_and_number() -> None:
    target = Target("t", SEEDS, _fragile)
    inputs = [input_of(target, 3, number) for number in range(300)]
    assert inputs == [input_of(target, 3, number) for number in range(300)]
    assert len(set(inputs)) > 150
    assert inputs != [input_of(target, 4, number) for number in range(300)]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_each_mutation_changes_something(mutate: object) -> None:
    assert callable(mutate)
    assert any(mutate(random.Random(number), SEEDS[0], SEEDS) != SEEDS[0] for number in range(20))


def test_a_wrong_error_is_found_kept_and_named_and_a_right_one_counted(tmp_path: Path) -> None:
    script = f"""
import json
import multiprocessing
from pathlib import Path
from tests.fuzz.run import fuzz
from tests.fuzz.target import Target
from tests.fuzz.test_fuzz import SEEDS, _fragile
target = Target("part/place", [SEEDS[1]], _fragile, (ValueError,))
found = fuzz([target], multiprocessing.Array("q", 2), seconds=1.0, seed=0, keep=Path({str(tmp_path)!r}))
print(json.dumps(found.to_json()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    outcome = json.loads(done.stdout)
    counted = outcome["tallies"]["part/place"]["outcomes"]
    assert set(counted) == {"fine", "ValueError", "WRONG KeyError"}
    (finding,) = outcome["findings"]
    assert b"null" in Path(finding["input"]).read_bytes()


def test_every_seed_of_the_wire_is_valid() -> None:
    for target in targets():
        for seed in target.seeds:
            target.feed(seed)


def _dying(writer: Connection, progress: "SynchronizedArray[int]", *_: object) -> None:
    writer.send(["part/harmless", "part/deadly"])
    progress[0], progress[1] = 1, 77
    os.kill(os.getpid(), signal.SIGSEGV)


def test_a_process_that_dies_is_a_finding_with_its_place(tmp_path: Path) -> None:
    found = outcome_of(_dying, seconds=1.0, seed=5, only="", keep=tmp_path)
    assert found == "the process ended with -11 at part/deadly, input 77 of seed 5"

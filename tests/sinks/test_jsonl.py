import json
import time
from pathlib import Path

import numpy as np

from edge_agent.sinks.jsonl import QUEUE_BATCHES, JsonLinesSink

OUTPUT = np.zeros((1, 3), dtype=np.float32)


def _ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_everything_taken_is_written_before_the_end(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "out.jsonl", max_bytes=1_000_000)
    sink.start()
    for number in range(100):
        sink.write([str(number)], [0.0], OUTPUT, "w")
    sink.stop(60.0)
    assert _ids(tmp_path / "out.jsonl") == [str(number) for number in range(100)]
    assert not sink.alive
    assert (sink.dropped, sink.failure) == (0, None)


def test_a_restart_appends_and_the_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for start in (0, 100):
        sink = JsonLinesSink(path, max_bytes=2000)
        sink.start()
        for number in range(start, start + 100):
            sink.write([str(number)], [0.0], OUTPUT, "w")
        sink.stop(60.0)
    older = tmp_path / "out.jsonl.1"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.jsonl", "out.jsonl.1"]
    assert path.stat().st_size <= 2000
    assert older.stat().st_size <= 2000
    ids = _ids(older) + _ids(path)
    assert ids == [str(number) for number in range(200 - len(ids), 200)]


def test_a_full_queue_drops_and_counts_without_waiting(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "out.jsonl", max_bytes=1_000_000)
    for _ in range(QUEUE_BATCHES + 3):
        sink.write(["a", "b"], [0.0, 0.0], np.zeros((2, 3), dtype=np.float32), "w")
    assert sink.dropped == 6


def test_a_disk_that_refuses_drops_until_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    sink = JsonLinesSink(folder / "out.jsonl", max_bytes=1_000_000)
    sink.start()
    sink.write(["lost"], [0.0], OUTPUT, "w")
    deadline_s = time.monotonic() + 60.0
    while sink.dropped == 0 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    folder.mkdir()
    sink.write(["kept"], [0.0], OUTPUT, "w")
    sink.stop(60.0)
    assert sink.dropped == 1
    assert _ids(folder / "out.jsonl") == ["kept"]

"""One run of the agent's loop, or of a bare loop over the same rows, in a process of its own.

``python -m tests.benchmarks.loop_data.looped agent|bare CASE SETTINGS BATCH [PASSES]``: the case's folder and the
gateway's settings, as `made` left them; a JSON object on standard output.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

STREAM = "stream.npz"
HALF_FULL = 256
FULL_WAIT_S = 0.001
DRAIN_S = 120.0


def bare(case: Path, settings: Path, batch: int, passes: int = 1) -> dict[str, Any]:
    """``session.run`` over the rows, so many times, with nothing else."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(str(case / "net.onnx"), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    with np.load(settings.parent / STREAM) as stream:
        rows = stream[name]
    session.run(None, {name: rows[:batch]})
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for _ in range(passes):
        for start in range(0, len(rows), batch):
            session.run(None, {name: rows[start : start + batch]})
    return _spent(began_s, cpu_s, passes * len(rows))


def agent(settings: Path, batch: int, passes: int = 1) -> dict[str, Any]:
    """The agent's own parts from source to recorded result: pipeline and recorder threads, stores on disk, monitor.

    Raises:
        RuntimeError: something was not recorded or not judged: the loop did less than it should.
    """
    from edge_agent.config import load_settings
    from edge_agent.link.outbox import Outbox
    from edge_agent.link.settings import TimeJudge
    from edge_agent.ota.floors import Floors
    from edge_agent.runtime.loaded import keep_what_is_loaded, let_in_soon
    from edge_agent.runtime.model_in_service import ModelInService
    from edge_agent.runtime.pipeline import Pipeline
    from edge_agent.runtime.sample_records import SampleRecords
    from edge_agent.runtime.storage import AgentStorage

    read = load_settings(settings)
    with tempfile.TemporaryDirectory(dir=settings.parent) as data:
        chosen = read.model_copy(update={"gateway": read.gateway.model_copy(update={"data_dir": Path(data)})})
        storage = AgentStorage(Path(data))
        outbox = Outbox(storage.agent, chosen.gateway.id, max_bytes=10**7, max_age_s=10**9)
        floors = Floors(storage.agent)
        model = ModelInService(chosen, storage.agent, floors, TimeJudge(lambda: 0.0, lambda problem: None))
        source = Unhurried(chosen, model.manifest, batch, passes)
        model.pipeline = Pipeline(source, model.server, model.sink)
        source.recorder_waits = model.pipeline.recordables.qsize
        records = SampleRecords(chosen, storage, outbox, model, flagged=lambda: None)
        keep_what_is_loaded()
        let_in_soon()
        began_s, cpu_s = time.perf_counter(), time.process_time()
        records.recorder.start()
        model.pipeline.start()
        until_s = time.monotonic() + DRAIN_S
        while not model.pipeline.finished and model.pipeline.alive and time.monotonic() < until_s:
            time.sleep(FULL_WAIT_S)
        records.recorder.stop(DRAIN_S)
        spent = _spent(began_s, cpu_s, model.pipeline.served_samples)
        lost = model.pipeline.unrecorded_samples + records.recorder.lost_batches
        judged, firings = records.watch.cursor, records.watch.firings
        waiting = (
            batch * max(64, *(monitor.batch_size for monitor in model.manifest.monitors.values())) + source.unlabelled
        )
        storage.close()
    rows = source.replay.played
    if lost or spent["rows"] != rows or not rows - waiting <= judged <= rows:
        raise RuntimeError(f"of {rows} samples {spent['rows']} were served and {judged} judged, {lost} were lost")
    return {**spent, "judged": judged, "firings": firings}


class Unhurried:
    """The agent's replay, as fast as it is taken; it waits for the recorder alone, since nothing may be dropped.

    Everything is always due: a read gives as many batches as the replay gives at once, and the model still runs once
    a batch.

    Attributes:
        unlabelled: samples at the end whose labels are not due any more: a stream of several passes is cut off.
    """

    bad_messages = 0

    def __init__(self, settings: Any, manifest: Any, batch: int, passes: int) -> None:
        from edge_agent.sources.replay import READ_ROWS, ReplaySource

        section = settings.source
        self._now_s, self._step_s = 0.0, max(batch, READ_ROWS) / section.rate_hz
        self.recorder_waits: Callable[[], int] = lambda: 0
        self.replay = ReplaySource(
            section.path,
            manifest.inputs,
            rate_hz=section.rate_hz,
            loop=passes > 1,
            batch_size=batch,
            delay_s=section.delay_s,
            clock=lambda: self._now_s,
        )
        self._rows = None if passes == 1 else passes * _rows_of(section.path)
        self.unlabelled = 0 if self._rows is None else int(section.delay_s * section.rate_hz) + READ_ROWS

    def read(self, timeout_s: float) -> Any:
        """What the replay gives next; it is always due."""
        if self._rows is not None and self.replay.played >= self._rows:
            return None
        while self.recorder_waits() >= HALF_FULL:
            time.sleep(FULL_WAIT_S)
        self._now_s += self._step_s
        return self.replay.read(0.0)

    def close(self) -> None:
        """End the replay."""
        self.replay.close()


def _rows_of(recording: Path) -> int:
    with np.load(recording) as columns:
        return len(columns["label"])


def _spent(began_s: float, cpu_s: float, rows: int) -> dict[str, Any]:
    return {"cpu_s": time.process_time() - cpu_s, "wall_s": time.perf_counter() - began_s, "rows": rows}


def main(way: str, case: Path, settings: Path, batch: int, passes: int = 1) -> None:
    """Run one way and print what it took."""
    print(json.dumps(bare(case, settings, batch, passes) if way == "bare" else agent(settings, batch, passes)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:]))

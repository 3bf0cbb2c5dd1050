"""The agent's parts at 100 Hz, in turn alone and while their worker trains, in a process of its own.

``python -m tests.benchmarks.loop_data.paced SETTINGS GRAPH PHASES SECONDS SCHEDULING...``: settings as `made` left;
a JSON object on standard output: for ``alone`` and each scheduling of the worker a list a phase, of seconds from when
a sample was due to its prediction.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edge_agent.config import AgentSettings, load_settings
from edge_agent.link.outbox import Outbox
from edge_agent.link.settings import TimeJudge
from edge_agent.ota.floors import Floors
from edge_agent.runtime.loaded import keep_what_is_loaded, let_in_soon
from edge_agent.runtime.model_in_service import ModelInService
from edge_agent.runtime.pipeline import Pipeline
from edge_agent.runtime.sample_records import SampleRecords
from edge_agent.runtime.storage import AgentStorage
from edge_agent.sinks.sink import NoSink
from edge_agent.sources.replay import ReplaySource
from edge_agent.training.job import TrainingJob, WorkerLimits
from edge_agent.training.supervisor import TrainingSupervisor
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.tensors import encode_weights

RATE_HZ = 100.0
BATCH = 32
SETTLE_S = 4.0  # what is served meanwhile is what the worker trains on
POLL_S = 0.25
FIRST_STEP_S = 60.0
STOP_S = 5.0
STOPPED_S = 1.0
ALONE = "alone"
ENDLESS = 10**6
LEARNING_RATE = 1e-4
Scheduling = Literal["idle", "batch", "normal"]
Taken = dict[str, list[list[float]]]


class Stopwatch(NoSink):
    """A sink that notes how late each prediction is."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self.late_s: list[float] = []

    def clock(self) -> float:
        """The source's clock: its first look is when sample 0 is due."""
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s = now_s
        return now_s

    def write(
        self, ids: list[str], times: list[float], outputs: NDArray[np.float32], weights: str, task: str | None = None
    ) -> None:
        """A sample's prediction is there."""
        assert self._began_s is not None
        self.late_s.append(time.monotonic() - self._began_s - len(self.late_s) / RATE_HZ)


def measure(
    settings: AgentSettings, jobs: dict[str, TrainingJob], *, phases: int, seconds: float, settle_s: float = SETTLE_S
) -> Taken:
    """Latencies in seconds of each phase, ``alone`` and beside each job in turn."""
    taken: Taken = {ALONE: [], **{name: [] for name in jobs}}
    watch = Stopwatch()
    with _serving(settings, watch) as data:
        worker = TrainingSupervisor(data / "work")
        time.sleep(settle_s)
        for phase in range(phases):
            taken[ALONE].append(_window(worker, watch, seconds))
            for name, one in jobs.items():
                changes = {"command_id": f"{name}-{phase}", "samples_db": data / "samples.db"}
                worker.start(one.model_copy(update=changes))
                _await_first_step(worker)
                taken[name].append(_window(worker, watch, seconds))
                assert worker.busy, "the worker ended before its time"
                worker.stop()
                time.sleep(STOPPED_S)
    return taken


def _window(worker: TrainingSupervisor, watch: Stopwatch, seconds: float) -> list[float]:
    """The worker is looked at as often as the agent looks."""
    first, until_s = len(watch.late_s), time.monotonic() + seconds
    while time.monotonic() < until_s:
        time.sleep(POLL_S)
        outcome = worker.poll()
        assert outcome is None, outcome
    return watch.late_s[first:]


def _await_first_step(worker: TrainingSupervisor) -> None:
    until_s = time.monotonic() + FIRST_STEP_S
    while worker.progress is None:
        outcome = worker.poll()
        if outcome is not None or time.monotonic() > until_s:
            raise RuntimeError(f"the worker does not train: {outcome}")
        time.sleep(POLL_S)


@contextmanager
def _serving(settings: AgentSettings, watch: Stopwatch) -> Iterator[Path]:
    """Pipeline and recorder over stores on disk; the folder of these."""
    with tempfile.TemporaryDirectory(dir=settings.source.path.parent) as folder:  # type: ignore[union-attr]
        data = Path(folder)
        chosen = settings.model_copy(update={"gateway": settings.gateway.model_copy(update={"data_dir": data})})
        storage = AgentStorage(data)
        outbox = Outbox(storage.agent, chosen.gateway.id, max_bytes=10**7, max_age_s=10**9)
        model = ModelInService(chosen, storage.agent, Floors(storage.agent), TimeJudge(lambda: 0.0))
        model.pipeline = Pipeline(_source(chosen, model, watch), model.server, watch)
        records = SampleRecords(chosen, storage, outbox, model, flagged=lambda: None)
        keep_what_is_loaded()
        let_in_soon()
        records.recorder.start()
        model.pipeline.start()
        try:
            yield data
        finally:
            model.pipeline.stop(STOP_S)
            records.recorder.stop(STOP_S)
            storage.close()
        if model.pipeline.unrecorded_samples or records.recorder.lost_batches:
            raise RuntimeError("samples were not recorded")


def _source(settings: AgentSettings, model: ModelInService, watch: Stopwatch) -> ReplaySource:
    section: Any = settings.source
    return ReplaySource(
        section.path,
        model.manifest.inputs,
        rate_hz=RATE_HZ,
        loop=True,
        batch_size=1,
        delay_s=section.delay_s,
        clock=watch.clock,
    )


def job(settings: AgentSettings, graph: str, scheduling: Scheduling) -> TrainingJob:
    """A round without an end, on everything that is stored."""
    from edge_agent.model.bundle import load_bundle

    bundle = load_bundle(settings.gateway.bundle)
    payload = encode_weights(bundle.initial_weights())
    weights = settings.gateway.bundle.parent / "weights.safetensors"
    weights.write_bytes(payload)
    return TrainingJob(
        command_id="phase",
        duration_s=float(ENDLESS),
        limits=WorkerLimits(scheduling=scheduling),
        bundle_dir=bundle.path,
        bundle=bundle.digest,
        weights_file=weights,
        weights=sha256_hex(payload),
        samples_db=Path("samples.db"),
        max_samples=ENDLESS,
        training_graph=graph,
        learning_rate=LEARNING_RATE,
        epochs=ENDLESS,
        batch_size=BATCH,
        min_samples=1,
        seed=1,
    )


def main(settings_file: Path, graph: str, phases: int, seconds: float, schedulings: Sequence[Scheduling]) -> None:
    """Measure and print."""
    settings = load_settings(settings_file)
    jobs: dict[str, TrainingJob] = {name: job(settings, graph, name) for name in schedulings}
    print(json.dumps(measure(settings, jobs, phases=phases, seconds=seconds)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])  # type: ignore[arg-type]

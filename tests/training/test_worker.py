import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge_agent.errors import DataError
from edge_agent.training.job import RESULT_FILE, FailureReason, read_result
from edge_agent.training.worker import failure

# Nothing of these: they cost start-up time and memory in every round.
SESSION = Path("/proc/self/autogroup")
HEAVY = ("tuf", "paho", "prometheus_client", "typer", "rich", "pydantic_settings", "flwr", "onnx", "scipy", "torch")


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("label 7 is outside 0..2", "bad-samples"),
        ("infer.onnx cannot run: AllocateRawInternal Failed to allocate memory for requested buffer", "out-of-memory"),
        ("infer.onnx cannot run: std::bad_alloc", "out-of-memory"),
    ],
)
def test_a_failure_for_lack_of_memory_is_told_from_others(problem: str, reason: FailureReason) -> None:
    assert failure(DataError(problem), "bad-samples").reason == reason


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"kind":"train"}', b'{"kind":"other"}', b"\xff"])
def test_a_file_that_is_no_job_gives_a_result_that_says_so(tmp_path: Path, payload: bytes) -> None:
    job = tmp_path / "job.json"
    job.write_bytes(payload)
    done = subprocess.run([sys.executable, "-m", "edge_agent.training.worker", str(job)], check=True, timeout=60)
    assert done.returncode == 0
    result = read_result((tmp_path / RESULT_FILE).read_bytes())
    assert not result.ok
    assert result.reason == "bad-job"


def test_the_worker_imports_little_and_starts_quickly() -> None:
    runs = [(_loaded("edge_agent.training.worker"), _loaded("numpy, onnxruntime")) for _ in range(3)]
    assert not {name.split(".")[0] for name in runs[0][0][0]} & set(HEAVY)
    worker_s, least_s = (min(run[place][1] for run in runs) for place in (0, 1))
    assert worker_s < 4 * least_s  # it cannot do without those two; twice their time was measured


def _loaded(modules: str) -> tuple[list[str], float]:
    """All that an import loads, and the processor time that it takes with Python's own start."""
    program = (
        f"import json, resource, sys, {modules}\n"
        "usage = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(json.dumps([sorted(sys.modules), usage.ru_utime + usage.ru_stime]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    names, cpu_s = json.loads(done.stdout)
    return names, cpu_s


def test_the_worker_is_niced_leaves_no_core_file_and_is_the_first_to_go_when_memory_is_short() -> None:
    program = (
        "import os, resource\n"
        "from edge_agent.training.confinement import confine\n"
        "from edge_agent.training.job import WorkerLimits\n"
        "confine(WorkerLimits(nice=7, address_space_bytes=1 << 30))\n"
        "print(os.nice(0), resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
        "print(open('/proc/self/oom_score_adj').read())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    own = os.nice(0)
    assert done.stdout.split() == [str(min(own + 7, 19)), str(1 << 30), "0", "1000"]


@pytest.mark.parametrize(("scheduling", "nice"), [("batch", 7), ("idle", 19)])
@pytest.mark.parametrize("leads", [True, False], ids=["its session", "the agent's session"])
def test_a_worker_is_nice_to_the_agents_session_too(scheduling: str, nice: int, leads: bool) -> None:
    """Where the kernel shares by session; where it does not there is nothing to be nice to, and the worker runs."""
    program = (
        "from pathlib import Path\n"
        "from edge_agent.training.confinement import confine\n"
        "from edge_agent.training.job import WorkerLimits\n"
        f"confine(WorkerLimits(nice=7, scheduling={scheduling!r}))\n"
        f"print(Path({str(SESSION)!r}).read_text() if {SESSION.exists()} else 'runs')\n"
    )
    before = _of_session()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60, start_new_session=leads
    )
    if leads and SESSION.exists():
        assert done.stdout.split()[-2:] == ["nice", str(nice)]
    else:
        assert done.stdout.split() == before == _of_session()


def _of_session() -> list[str]:
    return SESSION.read_text(encoding="ascii").split() if SESSION.exists() else ["runs"]


@pytest.mark.parametrize("scheduling", ["idle", "batch", "normal"])
def test_the_worker_runs_and_reads_after_everybody_else(scheduling: str) -> None:
    program = (
        "import ctypes, os, platform\n"
        "from edge_agent.training.confinement import confine\n"
        "from edge_agent.training.job import WorkerLimits\n"
        f"confine(WorkerLimits(nice=1, scheduling={scheduling!r}))\n"
        "get = {'x86_64': 252, 'aarch64': 31}.get(platform.machine())\n"
        "print(os.sched_getscheduler(0), ctypes.CDLL(None).syscall(get, 1, 0) >> 13 if get else 3)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    policy = {"idle": os.SCHED_IDLE, "batch": os.SCHED_BATCH, "normal": os.SCHED_OTHER}[scheduling]
    assert done.stdout.split() == [str(policy), "3"]  # 3: IOPRIO_CLASS_IDLE


def test_the_worker_knows_how_old_it_is_imports_and_all() -> None:
    program = "import time; time.sleep(0.3); from edge_agent.training.confinement import age_s; print(age_s())"
    began_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0.3 < float(done.stdout) < time.monotonic() - began_s + 0.02

"""``python -m tests.benchmarks cohorting``: Algorithm 3 beside the reference package: time, memory, growth.

Both get the same matrix and are timed in turn in one process, by CPU time and on one thread. Peaks of memory are
measured in processes of their own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from server_bridge.cohorts.cohorter import CLMACohorter
from tests.benchmarks.cohorting_inputs import FORMS, Form, fleet
from tests.benchmarks.growth_chart import exponent, growth_chart
from tests.benchmarks.report import RESULTS, machine

Size = tuple[int, int]
SIZES: tuple[Size, ...] = ((10, 545_290), (100, 545_290), (20, 11_000_000))
QUICK_SIZES: tuple[Size, ...] = ((4, 20_000),)
LARGEST = SIZES[-1]
MAPPED = (200, 11_000_000)
GAUSSIAN_BARS = dict(zip(SIZES, (40, 60, 200), strict=True))
LARGEST_BAR = 80
LONG_VALUES = 50_000_000  # from here on the peer, which takes a minute to half an hour, is run once
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
MEMORY_BARS = {"share": 0.25, "mapped_mib": 512}
GROWTH_CLIENTS: tuple[int, ...] = (10, 32, 100, 316, 1000)
GROWTH_PARAMETERS: tuple[int, ...] = (10_000, 100_000, 1_000_000, 11_000_000)


@dataclass(frozen=True, slots=True)
class Case:
    """One size and form: CPU seconds of both.

    Attributes:
        peer_clients: how many of the clients the peer was timed on; its time is scaled up from these.
        peer_date: when the peer was run.
        bar: how many times less ours must take; 0 for no bar.
    """

    form: str
    clients: int
    parameters: int
    ours_s: float
    peer_s: float
    peer_clients: int
    peer_date: str
    bar: int

    @property
    def ratio(self) -> float:
        """How many times less ours takes."""
        return self.peer_s / self.ours_s


def main(arguments: list[str]) -> None:
    """Run the parts asked for; exit code 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks cohorting", description=__doc__)
    parser.add_argument("--parts", default="time,memory,growth,mapped", help="comma-separated (default: all)")
    parser.add_argument("--runs", type=int, default=3, help="timed runs, interleaved (default 3)")
    parser.add_argument("--size", action="append", help="only this size, as in 10x545290; may be repeated")
    parser.add_argument("--form", action="append", choices=FORMS, help="only this input; may be repeated")
    parser.add_argument(
        "--peer-clients", type=int, help="time the peer on so few clients where it takes long, and scale"
    )
    parser.add_argument("--reuse-peer", action="store_true", help="take the peer's times from the last saved run")
    parser.add_argument("--folder", type=Path, help="where 8.8 GB of mapped weights are written (default: temporary)")
    parser.add_argument("--quick", action="store_true", help="seconds: small sizes, no bars")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    options = parser.parse_args(arguments)
    if not ONE_THREAD.items() <= os.environ.items():  # read when numpy is imported, so in a new process
        words = [sys.executable, "-m", "tests.benchmarks", "cohorting", *arguments]
        sys.exit(subprocess.run(words, check=False, env=os.environ | ONE_THREAD).returncode)
    parts = options.parts.split(",")
    found: dict[str, Any] = {"date": _today(), "machine": machine(), "threads": 1}
    missed: list[str] = []
    if "time" in parts:
        found["time"] = {
            _key(case.form, (case.clients, case.parameters)): asdict(case) | {"ratio": case.ratio}
            for case in _times(options, missed)
        }
    if "memory" in parts:
        found["memory"] = _memories(options, missed)
    if "growth" in parts:
        found["growth"] = _growth(options)
    if "mapped" in parts:
        found["mapped"] = _mapped(options, missed)
    if options.save:
        _save("cohorting.json", found)
    if missed:
        sys.exit("missed: " + "; ".join(missed))


def _times(options: argparse.Namespace, missed: list[str]) -> list[Case]:
    cases = []
    for size in _sizes(options):
        for form in options.form or FORMS:
            case = _time(form, size, options)
            cases.append(case)
            scaled = "" if case.peer_clients == case.clients else f", from {case.peer_clients} of its clients"
            print(
                f"  {case.clients:4d} x {case.parameters:10,d} {form:18s} ours {case.ours_s:8.3f} s"
                f"  fed-clma {case.peer_s:9.2f} s ({case.peer_date}{scaled})  {case.ratio:6.0f} times less",
                flush=True,
            )
            if case.ratio < case.bar:
                missed.append(f"{form} {size}: {case.ratio:.0f} times less, not {case.bar}")
    return cases


def _time(form: Form, size: Size, options: argparse.Namespace) -> Case:
    clients, parameters = size
    matrix, reference = fleet(form, clients, parameters)
    long = clients * parameters >= LONG_VALUES
    sampled = min(clients, options.peer_clients or clients) if long else clients
    known = _saved_peer(form, size) if options.reuse_peer else None
    ours: list[float] = []
    peer: list[float] = []
    for number in range(options.runs):
        ours.append(_cpu_s(lambda: CLMACohorter().cohort(range(clients), matrix, reference)))
        if known is None and not (long and number):
            peer.append(_cpu_s(_peer(matrix[:sampled], reference)) * clients / sampled)
    if known is None:
        known = {"peer_s": median(peer), "peer_clients": sampled, "peer_date": _today()}
        if options.save:
            _save_peer(form, size, known)
    bar = 0 if options.quick else GAUSSIAN_BARS.get(size, 0) if form == "gaussian" else LARGEST_BAR * (size == LARGEST)
    return Case(form, clients, parameters, median(ours), bar=bar, **known)


def _peer(matrix: Any, reference: Any) -> Callable[[], object]:
    """The reference package on the same input.

    Raises:
        ModuleNotFoundError: it is not installed (`make oracle`).
    """
    import clma

    def run() -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn's, of parts with few clients
            return clma.CLMACohorter().cohort(list(range(len(matrix))), matrix, reference)

    return run


def _memories(options: argparse.Namespace, missed: list[str]) -> dict[str, dict[str, float]]:
    results = {}
    for size in _sizes(options):
        for form in options.form or FORMS:
            measured = results[_key(form, size)] = _measured(form, size)
            share = measured["more_than_input_mib"] / measured["input_mib"]
            print(f"  {size[0]:4d} x {size[1]:10,d} {form:18s} peak: the input plus {share:.1%}", flush=True)
            if share > MEMORY_BARS["share"] and not options.quick:
                missed.append(f"{form} {size}: {share:.0%} more memory than the input")
    return results


def _mapped(options: argparse.Namespace, missed: list[str]) -> dict[str, Any]:
    size = QUICK_SIZES[0] if options.quick else MAPPED
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = _measured("gaussian", size, folder)
    peak_mib = result["process_peak_mib"]
    print(
        f"  {size[0]} x {size[1]:,} mapped from {result['input_mib'] / 1024:.1f} GiB: {result['cpu_s']:.0f} s CPU, "
        f"{result['wall_s']:.0f} s, the whole process peaks at {peak_mib:.0f} MiB",
        flush=True,
    )
    if peak_mib > MEMORY_BARS["mapped_mib"]:
        missed.append(f"mapped: {peak_mib:.0f} MiB")
    return {"form": "gaussian", "clients": size[0], "parameters": size[1], **result}


def _growth(options: argparse.Namespace) -> dict[str, Any]:
    """Ours alone: times by clients at 10,000 parameters, and by parameters with 10 clients."""
    clients, parameters = GROWTH_CLIENTS, GROWTH_PARAMETERS
    if options.quick:
        clients, parameters = clients[:2], parameters[:2]
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {
        "clients": {form: [(n, _ours_s(form, (n, 10_000))) for n in clients] for form in FORMS},
        "parameters": {form: [(d, _ours_s(form, (10, d))) for d in parameters] for form in FORMS},
    }
    fitted = {axis: {form: exponent(points) for form, points in curve.items()} for axis, curve in curves.items()}
    notes = {"clients": "clients, of 10,000 parameters each", "parameters": "parameters of each of 10 clients"}
    for axis, curve in curves.items():
        print(f"  growth with {axis}: " + ", ".join(f"{form} ^{e:.2f}" for form, e in fitted[axis].items()), flush=True)
        if options.save:
            chart = growth_chart(f"Cohorting, CPU time by {axis}", notes[axis], curve)
            (RESULTS / f"cohorting-{axis}.svg").write_text(chart, encoding="utf-8")
    return {"points": curves, "exponents": fitted}


def _ours_s(form: Form, size: Size) -> float:
    matrix, reference = fleet(form, *size)
    return min(_cpu_s(lambda: CLMACohorter().cohort(range(size[0]), matrix, reference)) for _ in range(3))


def _measured(form: Form, size: Size, *folder: str) -> dict[str, float]:
    words = [sys.executable, "-m", "tests.benchmarks.cohorting_memory", form, *map(str, size), *folder]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=3600)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _sizes(options: argparse.Namespace) -> tuple[Size, ...]:
    if not options.size:
        return QUICK_SIZES if options.quick else SIZES
    return tuple((int(clients), int(parameters)) for clients, _, parameters in (s.partition("x") for s in options.size))


def _cpu_s(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def _saved_peer(form: Form, size: Size) -> dict[str, Any] | None:
    path = RESULTS / "cohorting_peer.json"
    saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return saved.get(_key(form, size))


def _save_peer(form: Form, size: Size, result: dict[str, Any]) -> None:
    _save("cohorting_peer.json", {_key(form, size): result})


def _save(name: str, found: dict[str, Any]) -> None:
    """Cases that were not run this time stay as they were."""
    path = RESULTS / name
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for part, value in found.items():
        kept[part] = {**kept.get(part, {}), **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def _key(form: str, size: Size) -> str:
    return f"{size[0]}x{size[1]} {form}"

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
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from tests.benchmarks.cohorting_growth import growth, peer_by_clients
from tests.benchmarks.cohorting_inputs import FORMS, Form, fleet
from tests.benchmarks.cohorting_results import Results, Size, case_name, today
from tests.benchmarks.cohorting_ways import cpu_s, ours, peer
from tests.benchmarks.report import RESULTS

SIZES: tuple[Size, ...] = ((10, 545_290), (100, 545_290), (20, 11_000_000))
QUICK_SIZES: tuple[Size, ...] = ((4, 20_000),)
LARGEST = SIZES[-1]
MAPPED = (200, 11_000_000)
PARTS = ("time", "memory", "growth", "scaling", "mapped")
GAUSSIAN_BARS = dict(zip(SIZES, (40, 60, 200), strict=True))
LARGEST_BAR = 80
LONG_VALUES = 50_000_000  # from here on the peer, which takes a minute to half an hour, is run once
SCALED_FROM = (1, 2, 5)
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
MEMORY_BARS = {"share": 0.25, "mapped_mib": 512}


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
    options = _options(arguments)
    if not ONE_THREAD.items() <= os.environ.items():  # read when numpy is imported, so in a new process
        words = [sys.executable, "-m", "tests.benchmarks", "cohorting", *arguments]
        sys.exit(subprocess.run(words, check=False, env=os.environ | ONE_THREAD).returncode)
    results = Results(RESULTS, saved=options.save)
    missed: list[str] = []
    if "time" in options.parts:
        _times(options, results, missed)
    if "memory" in options.parts:
        _memories(options, results, missed)
    if "growth" in options.parts:
        growth(results, options.form or FORMS, quick=options.quick)
    if "scaling" in options.parts:
        for size in _sizes(options):
            peer_by_clients(results, size, [*(n for n in SCALED_FROM if n < size[0]), size[0]])
    if "mapped" in options.parts:
        _mapped(options, results, missed)
    if missed:
        sys.exit("missed: " + "; ".join(missed))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks cohorting", description=__doc__)
    parser.add_argument("--parts", type=_parts, default=PARTS, help=f"some of {','.join(PARTS)} (default: all)")
    parser.add_argument("--runs", type=int, default=3, help="timed runs, interleaved (default 3)")
    parser.add_argument("--size", action="append", help="only this size, as in 10x545290; may be repeated")
    parser.add_argument("--form", action="append", choices=FORMS, help="only this input; may be repeated")
    parser.add_argument(
        "--peer-clients", type=int, help="time the peer on so few clients where it takes long, and scale"
    )
    parser.add_argument("--reuse-peer", action="store_true", help="take the peer's times from the last saved run")
    parser.add_argument("--folder", type=Path, help="where 8.8 GB of mapped weights are written (default: temporary)")
    parser.add_argument("--quick", action="store_true", help="seconds: small sizes, no bars")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks as they come")
    return parser.parse_args(arguments)


def _parts(words: str) -> tuple[str, ...]:
    parts = tuple(words.split(","))
    if not set(parts) <= set(PARTS):
        raise argparse.ArgumentTypeError(f"there are the parts {', '.join(PARTS)}")
    return parts


def _times(options: argparse.Namespace, results: Results, missed: list[str]) -> None:
    for size in _sizes(options):
        for form in options.form or FORMS:
            case = _time(form, size, options, results)
            results.keep("time", case_name(form, size), asdict(case) | {"ratio": case.ratio})
            scaled = "" if case.peer_clients == case.clients else f", from {case.peer_clients} of its clients"
            print(
                f"  {case.clients:4d} x {case.parameters:10,d} {form:18s} ours {case.ours_s:8.3f} s"
                f"  fed-clma {case.peer_s:9.2f} s ({case.peer_date}{scaled})  {case.ratio:6.0f} times less",
                flush=True,
            )
            if case.ratio < case.bar:
                missed.append(f"{form} {size}: {case.ratio:.0f} times less, not {case.bar}")


def _time(form: Form, size: Size, options: argparse.Namespace, results: Results) -> Case:
    clients, parameters = size
    matrix, reference = fleet(form, clients, parameters)
    long = clients * parameters >= LONG_VALUES
    sampled = min(clients, options.peer_clients or clients) if long else clients
    known = results.peer(case_name(form, size)) if options.reuse_peer else None
    ours_s: list[float] = []
    peer_s: list[float] = []
    for number in range(options.runs):
        ours_s.append(cpu_s(ours(matrix, reference)))
        if known is None and not (long and number):
            peer_s.append(cpu_s(peer(matrix[:sampled], reference)) * clients / sampled)
    if known is None:
        known = {"peer_s": median(peer_s), "peer_clients": sampled, "peer_date": today()}
        results.keep_peer(case_name(form, size), known)
    bar = 0 if options.quick else GAUSSIAN_BARS.get(size, 0) if form == "gaussian" else LARGEST_BAR * (size == LARGEST)
    return Case(form, clients, parameters, median(ours_s), bar=bar, **known)


def _memories(options: argparse.Namespace, results: Results, missed: list[str]) -> None:
    for size in _sizes(options):
        for form in options.form or FORMS:
            measured = _measured(form, size)
            results.keep("memory", case_name(form, size), measured)
            share = measured["more_than_input_mib"] / measured["input_mib"]
            print(f"  {size[0]:4d} x {size[1]:10,d} {form:18s} peak: the input plus {share:.1%}", flush=True)
            if share > MEMORY_BARS["share"] and not options.quick:
                missed.append(f"{form} {size}: {share:.0%} more memory than the input")


def _mapped(options: argparse.Namespace, results: Results, missed: list[str]) -> None:
    size = QUICK_SIZES[0] if options.quick else MAPPED
    for form in options.form or FORMS[:1]:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            measured = _measured(form, size, folder)
        results.keep("mapped", case_name(form, size), measured)
        peak_mib = measured["process_peak_mib"]
        print(
            f"  {size[0]} x {size[1]:,} {form}, mapped from {measured['input_mib'] / 1024:.1f} GiB: "
            f"{measured['cpu_s']:.0f} s CPU, {measured['wall_s']:.0f} s, the whole process peaks at {peak_mib:.0f} MiB",
            flush=True,
        )
        if peak_mib > MEMORY_BARS["mapped_mib"]:
            missed.append(f"mapped, {form}: {peak_mib:.0f} MiB")


def _measured(form: Form, size: Size, *folder: str) -> dict[str, float]:
    words = [sys.executable, "-m", "tests.benchmarks.cohorting_memory", form, *map(str, size), *folder]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=3600)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _sizes(options: argparse.Namespace) -> tuple[Size, ...]:
    if not options.size:
        return QUICK_SIZES if options.quick else SIZES
    return tuple((int(clients), int(parameters)) for clients, _, parameters in (s.partition("x") for s in options.size))

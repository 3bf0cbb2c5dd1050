"""Runs in a peer's environment: thresholds swept until stationary streams give the wanted rate, then the drifts.

Input is an ``.npz`` of ``reference`` (g, r, ...), ``stationary`` (s, t, ...), ``stationary_groups`` (s,), and for each
kind of drift ``drift:KIND`` (n, t, ...), ``groups:KIND``, ``begins:KIND`` and ``lengths:KIND``. A detector that alarms
before a drift begins is started anew, having seen the reference. Output is an ``.npz`` of ``targets`` (k,),
``rates`` (k,) measured on ``batches`` (k,) batches, ``thresholds`` (k,), ``cpu_s``, and ``alarms:KIND`` (k, n): -1 for
none, -2 for a stream that was not run.
"""

import copy
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

BATCH = 32
TRIALS, CLOSE, NARROW = 10, 0.1, 1e-4
# A detector that takes longer a sample is run on the first streams of each kind of drift only.
SLOW_US, FEW = 1.8, 48
VERY_SLOW_US, FEWER = 25.0, 24
SLOWEST_US, FEWEST = 250.0, 12
# A detector that gives a statistic is run over the stationary streams once, not for each threshold.
PATH_BUDGETS = 8
# What a rate is measured on at least, and at most where only one is asked for.
LEAST_SAMPLES, BRIEF_SAMPLES = 200_000, 640_000

Arrays = Mapping[str, Any]
# Makes a detector of a threshold, feeds it a value and tells an alarm; the strictest and the loosest threshold.
ByThreshold = tuple[Callable[[float], Any], Callable[[Any, Any], bool], float, float]
# Makes a detector of a reference; feeds it a value and tells its statistic, larger for more of an alarm.
ByStatistic = tuple[Callable[[Any], Any], Callable[[Any, Any], float]]
Records = list[tuple[int, float]]


class Sweep:
    """The streams of one task for one detector whose threshold is given when it is made."""

    def __init__(self, arrays: Arrays, side: ByThreshold, job: Mapping[str, Any]) -> None:
        self.make, self.update, strictest, loosest = side
        self.arrays, self.budget_s = arrays, job["budget_s"]
        self.most_samples = math.inf if job["curve"] else BRIEF_SAMPLES
        self.ends = math.log(loosest), math.log(strictest)
        self.references = [values.tolist() for values in arrays["reference"]]
        self.seen: dict[float, tuple[float, int]] = {}
        self.ready: dict[tuple[float, int], Any] = {}
        us = self._us_a_sample()
        self.slow, self.starts = us > SLOW_US, starts_of(us)

    def _us_a_sample(self) -> float:
        """The least of three, since others may use the machine."""
        few, took_s = self.references[0][:1000], []
        for _ in range(3):
            detector, began_s = self.make(self.threshold(0.5)), time.process_time()
            for value in few:
                self.update(detector, value)
            took_s.append(time.process_time() - began_s)
        return min(took_s) / len(few) * 1e6

    def threshold(self, share: float) -> float:
        """From the loosest at 0 to the strictest at 1."""
        low, high = self.ends
        return math.exp(low + share * (high - low))

    def warm(self, share: float, group: int) -> Any:
        """A detector with this threshold that has seen a reference."""
        if (share, group) not in self.ready:
            detector = self.make(self.threshold(share))
            for value in self.references[group]:
                self.update(detector, value)
            self.ready[share, group] = detector
        return copy.deepcopy(self.ready[share, group])

    def first_alarm(self, share: float, group: int, stream: Sequence[Any], begin: int = 0) -> int:
        """The first sample from the begin on at which a detector that has seen the reference alarms, or -1."""
        detector, update = self.warm(share, group), self.update
        for number, value in enumerate(stream):
            if update(detector, value):
                if number >= begin:
                    return number
                detector = self.warm(share, group)
        return -1

    def rate(self, share: float) -> float:
        """False alarms a batch of 32: alarms over what was seen until each stream's first."""
        if share not in self.seen:
            alarms, samples, began_s = 0, 0, time.process_time()
            for group, stream in zip(self.arrays["stationary_groups"], self.arrays["stationary"], strict=True):
                first = self.first_alarm(share, int(group), stream.tolist())
                alarms += first >= 0
                samples += first + 1 if first >= 0 else len(stream)
                spent = time.process_time() - began_s > self.budget_s and samples > LEAST_SAMPLES
                if spent or samples > self.most_samples:
                    break  # a slow peer's rate is measured on the first of the streams
            self.seen[share] = alarms * BATCH / samples, samples // BATCH
        return self.seen[share][0]

    def nearest(self, target: float) -> float:
        """The share whose measured rate is nearest, by halving and by straight lines."""
        low, high = 0.0, 1.0
        for share in sorted(self.seen):
            if self.rate(share) > target:
                low = max(low, share)
            else:
                high = min(high, share)
        for trial in range(TRIALS):
            middle = self._between(low, high, target) if trial % 3 < 2 else (low + high) / 2
            rate = self.rate(middle)
            if rate > 0 and abs(math.log(rate / target)) < CLOSE * (1 + self.slow):
                break
            if rate > target:
                low = middle
            else:
                high = middle
            if high - low < NARROW:
                break
        return min(self.seen, key=lambda share: abs(math.log(max(self.rate(share), 1e-9) / target)))

    def _between(self, low: float, high: float, target: float) -> float:
        """Where a straight line through the ends' logarithms of the rates meets the target's; the middle at first."""
        if low not in self.seen or high not in self.seen:
            return (low + high) / 2
        above, below = (math.log(max(self.rate(end), 1e-6) / target) for end in (low, high))
        return low + (high - low) * min(0.9, max(0.1, above / (above - below)))

    def alarms(self, share: float, kind: str) -> Any:
        """(n,) the first alarm of each stream of a kind of drift; of a slow detector only the first streams."""
        streams, lengths = self.arrays[f"drift:{kind}"], self.arrays[f"lengths:{kind}"]
        begins = self.arrays[f"begins:{kind}"]
        found = np.full(len(streams), -2)
        for number, group in enumerate(self.arrays[f"groups:{kind}"][: self.starts]):
            stream = streams[number, : lengths[number]]
            found[number] = self.first_alarm(share, int(group), stream.tolist(), begins[number])
        return found


class PathSweep:
    """The same for a detector that gives a statistic: one run tells the alarms at every threshold.

    What is kept of a stream are its records, (sample, statistic) wherever the statistic exceeds all before.
    """

    def __init__(self, arrays: Arrays, side: ByStatistic, job: Mapping[str, Any]) -> None:
        make, self.score = side
        self.arrays = arrays
        self.detectors = [make(values) for values in arrays["reference"]]
        self.stationary: list[tuple[Records, int]] = []
        self.samples, began_s = 0, time.process_time()
        for group, stream in zip(arrays["stationary_groups"], arrays["stationary"], strict=True):
            self.stationary.append((self.records(int(group), stream, math.inf), len(stream)))
            self.samples += len(stream)
            spent_s = time.process_time() - began_s
            spent = spent_s > PATH_BUDGETS * job["budget_s"] and self.samples > LEAST_SAMPLES // 2
            if spent or self.samples > BRIEF_SAMPLES:
                break
        self.starts = starts_of(spent_s / self.samples * 1e6)

    def records(self, group: int, stream: Any, enough: float) -> Records:
        """Until the statistic exceeds what is enough."""
        detector, most = copy.deepcopy(self.detectors[group]), -math.inf
        found: Records = [(-1, most)]
        for number, value in enumerate(stream):
            statistic = self.score(detector, value)
            if statistic > most:
                most = statistic
                found.append((number, most))
                if most > enough:
                    break
        return found

    def rate(self, threshold: float) -> float:
        """False alarms a batch of 32."""
        alarms, samples = 0, 0
        for records, length in self.stationary:
            first = first_above(records, threshold)
            alarms += first >= 0
            samples += first + 1 if first >= 0 else length
        return alarms * BATCH / samples

    def nearest(self, target: float) -> float:
        """The threshold whose measured rate is nearest."""
        tried = sorted({value for records, _ in self.stationary for _, value in records[1:]})
        low, high = 0, len(tried) - 1
        while low < high:
            middle = (low + high) // 2
            if self.rate(tried[middle]) > target:
                low = middle + 1
            else:
                high = middle
        near = tried[max(0, low - 1) : low + 1]
        return min(near, key=lambda value: abs(math.log(max(self.rate(value), 1e-9) / target)))

    def alarms(self, thresholds: Sequence[float]) -> dict[str, Any]:
        """Of each kind of drift (k, n) the first alarms."""
        found = {}
        for kind in kinds_of(self.arrays):
            streams, lengths = self.arrays[f"drift:{kind}"], self.arrays[f"lengths:{kind}"]
            first = np.full((len(thresholds), len(streams)), -2)
            for number, group in enumerate(self.arrays[f"groups:{kind}"][: self.starts]):
                stream, begin = streams[number, : lengths[number]], int(self.arrays[f"begins:{kind}"][number])
                records = self.records(int(group), stream[:begin], math.inf)
                clean = [one for one in thresholds if first_above(records, one) < 0]
                whole = self.records(int(group), stream, max(clean)) if clean else []
                for place, one in enumerate(thresholds):
                    told = whole if one in clean else records
                    first[place, number] = self.after(begin, told, int(group), stream, one)
            found[f"alarms:{kind}"] = first
        return found

    def after(self, begin: int, records: Records, group: int, stream: Any, threshold: float) -> int:
        """The first alarm from the begin on, the detector being started anew after those before it."""
        first, passed = first_above(records, threshold), 0
        while 0 <= first < begin - passed:
            passed += first + 1
            first = first_above(self.records(group, stream[passed:], threshold), threshold)
        return first + passed if first >= 0 else -1


def starts_of(us: float) -> int | None:
    """How many streams of each kind of drift a detector runs on that takes so many microseconds a sample; None: all."""
    least = ((SLOW_US, None), (VERY_SLOW_US, FEW), (SLOWEST_US, FEWER), (math.inf, FEWEST))
    return next(starts for slowest, starts in least if us <= slowest)


def first_above(records: Records, threshold: float) -> int:
    """The sample of the first record above a threshold, or -1."""
    return next((number for number, value in records if value > threshold), -1)


def kinds_of(arrays: Arrays) -> list[str]:
    """The kinds of drift."""
    return [name.split(":")[1] for name in arrays if name.startswith("drift:")]


def run(detectors: Mapping[str, Any]) -> None:
    """``python SIDE.py INPUT OUTPUT JOB``: JOB is JSON: the detector's name, rates, whether all are wanted, a time."""
    source, goal, words = sys.argv[1:4]
    job, began_s = json.loads(words), time.process_time()
    arrays = dict(np.load(source))
    side = detectors[job["detector"]]
    found = by_statistic(arrays, side, job) if len(side) == len(("make", "score")) else by_threshold(arrays, side, job)
    np.savez(f"{goal}.part.npz", **found, cpu_s=time.process_time() - began_s)
    os.replace(f"{goal}.part.npz", goal)


def by_threshold(arrays: Arrays, side: ByThreshold, job: Mapping[str, Any]) -> dict[str, Any]:
    """Each threshold is a run of its own."""
    sweep = Sweep(arrays, side, job)
    targets = job["rates"] if job["curve"] else [job["target"]]
    shares = [sweep.nearest(target) for target in targets]
    found = {f"alarms:{kind}": np.array([sweep.alarms(share, kind) for share in shares]) for kind in kinds_of(arrays)}
    rates, batches = zip(*(sweep.seen[share] for share in shares), strict=True)
    thresholds = [sweep.threshold(share) for share in shares]
    return found | {"targets": targets, "rates": rates, "batches": batches, "thresholds": thresholds}


def by_statistic(arrays: Arrays, side: ByStatistic, job: Mapping[str, Any]) -> dict[str, Any]:
    """One run for all thresholds."""
    sweep = PathSweep(arrays, side, job)
    thresholds = [sweep.nearest(target) for target in job["rates"]]
    rates = [sweep.rate(threshold) for threshold in thresholds]
    batches = [sweep.samples // BATCH] * len(rates)
    told = {"targets": job["rates"], "rates": rates, "batches": batches, "thresholds": thresholds}
    return sweep.alarms(thresholds) | told

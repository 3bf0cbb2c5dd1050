"""From holdout counts to a gateway's accuracies before, drifted and final; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from server_bridge.demo.data import BUCKETS_PER_PASS
from server_bridge.demo.facts import Point, Tally
from server_bridge.demo.streams import StreamPlan
from server_bridge.store.counts import StoredCounts

BASE_COHORT = "root"
BASE_VERSION = 1
CLOSED_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class Model:
    """Which weights served: a cohort and its version."""

    cohort: str
    version: int

    @property
    def is_base(self) -> bool:
        """Whether these are the weights that the fleet began with."""
        return (self.cohort, self.version) == (BASE_COHORT, BASE_VERSION)


BASE = Model(BASE_COHORT, BASE_VERSION)
Buckets = Mapping[int, Tally]


def buckets_of(counts: Iterable[StoredCounts], model: Model) -> dict[int, Tally]:
    """One gateway's tallies by bucket under one model."""
    found: dict[int, Tally] = {}
    for row in counts:
        if Model(row.cohort, row.weights_version) == model:
            found[row.bucket] = found.get(row.bucket, Tally()) + Tally(row.labelled, row.right)
    return found


def clean_tally(stream: StreamPlan, base: Buckets) -> tuple[Tally, bool]:
    """Base weights on the clean pass, and whether all of it is counted."""
    return _sum(base, range(BUCKETS_PER_PASS)), _closed(stream, base, range(BUCKETS_PER_PASS))


def drifted_tally(base: Buckets) -> Tally:
    """Base weights on whatever they served of the second pass."""
    return _sum(base, [bucket for bucket in base if bucket >= BUCKETS_PER_PASS])


def final_tally(stream: StreamPlan, base: Buckets, final: Buckets) -> tuple[Tally, bool]:
    """The released weights on whole passes, and whether there is at least one.

    The bucket in which the weights changed is left out, so that each window counts equally often.
    """
    whole = sorted(bucket for bucket in final if bucket >= BUCKETS_PER_PASS and bucket not in base)
    tally, done = Tally(), False
    while len(whole) >= BUCKETS_PER_PASS:
        span, whole = whole[:BUCKETS_PER_PASS], whole[BUCKETS_PER_PASS:]
        if not _closed(stream, final, span):
            break
        tally, done = tally + _sum(final, span), True
    return tally, done


def points_of(stream: StreamPlan, counts: Iterable[StoredCounts], start_s: float) -> list[Point]:
    """Every counted bucket as a point in time.

    Args:
        start_s: when the stream began, on the scale of the points.
    """
    rows = sorted(counts, key=lambda row: (row.bucket, row.weights_version))
    width = stream.bucket_s
    return [
        Point(
            start_s + row.bucket * width,
            start_s + (row.bucket + 1) * width,
            row.weights_version,
            row.cohort,
            Tally(row.labelled, row.right),
        )
        for row in rows
        if row.labelled
    ]


def _sum(buckets: Buckets, chosen: Iterable[int]) -> Tally:
    return sum((buckets.get(bucket, Tally()) for bucket in chosen), Tally())


def _closed(stream: StreamPlan, buckets: Buckets, span: Sequence[int]) -> bool:
    """Whether nothing more will come: every row is counted, or counts came from well after."""
    newest = max(buckets, default=-1)
    late = CLOSED_AFTER_S / stream.bucket_s
    return all(
        buckets.get(bucket, Tally()).labelled >= stream.expected(bucket) or newest > bucket + late for bucket in span
    )

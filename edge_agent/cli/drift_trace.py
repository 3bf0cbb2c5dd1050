"""A long series in bounded memory: neighbouring points share a bucket once there are too many."""

from collections.abc import Iterator
from dataclasses import dataclass, field

BUCKETS_MOST = 2048


@dataclass(frozen=True, slots=True)
class Bucket:
    """Neighbouring points.

    Attributes:
        row: samples that had been served by the last of them.
        highest, lowest: of their values.
        total, count: for their mean.
    """

    row: int
    highest: float
    lowest: float
    total: float
    count: int

    @property
    def mean(self) -> float:
        """Of the values."""
        return self.total / self.count

    def joined(self, later: "Bucket") -> "Bucket":
        """With the one after it."""
        return Bucket(
            later.row,
            max(self.highest, later.highest),
            min(self.lowest, later.lowest),
            self.total + later.total,
            self.count + later.count,
        )


@dataclass(slots=True)
class Trace:
    """Points in the order of their rows; at most ``BUCKETS_MOST`` buckets, however many points.

    Cost: O(1) a point on average.
    """

    _buckets: list[Bucket] = field(default_factory=list)
    _points_a_bucket: int = 1

    def __len__(self) -> int:
        return len(self._buckets)

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._buckets)

    def add(self, row: int, value: float) -> None:
        """A point, finite, at or after the last one's row."""
        point = Bucket(row, value, value, value, 1)
        if self._buckets and self._buckets[-1].count < self._points_a_bucket:
            self._buckets[-1] = self._buckets[-1].joined(point)
            return
        if len(self._buckets) == BUCKETS_MOST:
            pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
            self._buckets = [first.joined(second) for first, second in pairs]
            self._points_a_bucket *= 2
        self._buckets.append(point)

"""What is known beforehand of each gateway's stream: where its passes and accuracy buckets lie."""

from dataclasses import dataclass

from server_bridge.demo.data import BUCKETS_PER_PASS, Stream
from server_bridge.demo.plan import GatewayPlan


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """One gateway's stream in time.

    Attributes:
        rows_per_pass: of the clean and of the second pass alike.
        clean, second: holdout rows of each bucket of a pass.
    """

    gateway: GatewayPlan
    rate_hz: float
    rows_per_pass: int
    clean: tuple[int, ...]
    second: tuple[int, ...]

    @classmethod
    def of(cls, gateway: GatewayPlan, stream: Stream, rate_hz: float) -> "StreamPlan":
        """From the stream itself."""
        held, rows = stream.windows.holdout, stream.bucket_rows
        sums = [int(held[start : start + rows].sum()) for start in range(0, len(held), rows)]
        return cls(
            gateway,
            rate_hz,
            stream.loop_from_row,
            tuple(sums[:BUCKETS_PER_PASS]),
            tuple(sums[BUCKETS_PER_PASS:]),
        )

    @property
    def bucket_s(self) -> float:
        """Stream time of one accuracy bucket."""
        return self.rows_per_pass / BUCKETS_PER_PASS / self.rate_hz

    @property
    def pass_s(self) -> float:
        """Stream time of one pass; the remount comes after the first."""
        return self.rows_per_pass / self.rate_hz

    def expected(self, bucket: int) -> int:
        """Holdout rows in a bucket, counted from the stream's start."""
        if bucket < BUCKETS_PER_PASS:
            return self.clean[bucket]
        return self.second[bucket % BUCKETS_PER_PASS]

"""Series in bounded memory."""

from edge_agent.cli.drift_trace import BUCKETS_MOST, Trace


def test_few_points_stay_as_they_are() -> None:
    trace = Trace()
    for row in range(5):
        trace.add(row, float(row))
    assert [(bucket.row, bucket.highest, bucket.count) for bucket in trace] == [
        (row, float(row), 1) for row in range(5)
    ]


def test_many_points_keep_their_peak_and_mean_in_bounded_memory() -> None:
    trace = Trace()
    for row in range(100_000):
        trace.add(row, 7.0 if row == 65_432 else 1.0)
    buckets = list(trace)
    assert BUCKETS_MOST / 2 <= len(buckets) <= BUCKETS_MOST
    assert sum(bucket.count for bucket in buckets) == 100_000
    assert sum(bucket.total for bucket in buckets) == 100_006.0
    (peak,) = [bucket for bucket in buckets if bucket.highest == 7.0]
    assert abs(peak.row - 65_432) < 128
    assert [bucket.row for bucket in buckets] == sorted(bucket.row for bucket in buckets)
    assert buckets[-1].row == 99_999

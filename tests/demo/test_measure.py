from server_bridge.demo.data import BUCKETS_PER_PASS
from server_bridge.demo.facts import Tally
from server_bridge.demo.measure import BASE, Model, buckets_of, clean_tally, drifted_tally, final_tally, points_of
from server_bridge.demo.plan import Family, GatewayPlan
from server_bridge.demo.streams import StreamPlan
from server_bridge.store.counts import StoredCounts

B = BUCKETS_PER_PASS
STREAM = StreamPlan(GatewayPlan("gw-01", Family.PERMUTED, 1), 10.0, 20 * B, (10,) * B, (8,) * B)


def even(buckets: range, labelled: int, right: int) -> dict[int, Tally]:
    return dict.fromkeys(buckets, Tally(labelled, right))


def test_the_clean_pass_is_counted_when_every_row_is() -> None:
    assert clean_tally(STREAM, even(range(B), 10, 9)) == (Tally(10 * B, 9 * B), True)
    partly = even(range(B), 10, 9) | {B - 1: Tally(9, 9)}
    assert clean_tally(STREAM, partly)[1] is False


def test_a_lost_row_does_not_keep_a_bucket_open_for_ever() -> None:
    counts = even(range(4 * B), 10, 9) | {0: Tally(9, 9)}
    assert clean_tally(STREAM, counts)[1] is True


def test_drifted_is_everything_the_base_weights_served_after_the_clean_pass() -> None:
    assert drifted_tally(even(range(B + 2), 8, 2)) == Tally(16, 4)


def test_final_leaves_out_the_bucket_of_the_change_and_counts_whole_passes() -> None:
    base = even(range(2 * B + 1), 8, 2)
    final = {2 * B: Tally(4, 0)} | even(range(2 * B + 1, 3 * B + 3), 8, 8)
    assert final_tally(STREAM, base, final) == (Tally(8 * B, 8 * B), True)


def test_final_is_not_done_before_a_whole_pass() -> None:
    base = even(range(2 * B), 8, 2)
    assert final_tally(STREAM, base, even(range(2 * B, 3 * B - 1), 8, 8)) == (Tally(), False)
    last_open = even(range(2 * B, 3 * B - 1), 8, 8) | {3 * B - 1: Tally(7, 7)}
    assert final_tally(STREAM, base, last_open)[1] is False


def test_counts_are_kept_apart_by_model() -> None:
    rows = [
        StoredCounts("gw-01", "a" * 64, 1, "root", 2.0, 3, 8, 2, 1.0),
        StoredCounts("gw-01", "b" * 64, 1, "c1", 2.0, 3, 5, 5, 0.1),
    ]
    assert buckets_of(rows, BASE) == {3: Tally(8, 2)}
    assert buckets_of(rows, Model("c1", 1)) == {3: Tally(5, 5)}
    points = points_of(STREAM, rows, start_s=100.0)
    assert [(point.start_s, point.end_s) for point in points] == [(106.0, 108.0), (106.0, 108.0)]


def test_only_root_version_one_is_the_base() -> None:
    assert BASE.is_base
    assert not Model("root", 2).is_base
    assert not Model("c1", 1).is_base

import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.drift_data import label_free, ours, verdict
from tests.benchmarks.drift_data.keep import add, save
from tests.benchmarks.drift_data.measure import RATES, TARGET, Swept, rate_above, sweep_paths
from tests.benchmarks.drift_data.peers import LABELLED, UNLABELLED, Peer, inputs, result
from tests.benchmarks.drift_data.progress import Progress, claim
from tests.benchmarks.drift_data.streams import KINDS, SHARES, Drawn, Extent, draw, moved_labels, resample
from tests.benchmarks.drift_data.tasks import Net, Rows, Task
from tests.benchmarks.drift_peers.sweep import by_statistic, by_threshold, starts_of

SMALL = Extent(references=2, stationary=12, batches=100, starts=6, before=(100, 200), after=600)


def _rows(count: int, seed: int, shift: float = 0.0) -> Rows:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    centres = np.random.default_rng(1).normal(0, 2, (3, 8))
    return Rows(centres[labels] + rng.normal(shift, 1, (count, 8)), labels.astype(np.float64))


@pytest.fixture(scope="module")
def task() -> Task:
    return Task("toy", Net(_rows(400, 2), 3), _rows(300, 3), (_rows(200, 4, 3.0),), block=1, ordered=False)


@pytest.fixture(scope="module")
def drawn(task: Task) -> Drawn:
    return draw(task, SMALL, 0)


def test_drifts_begin_when_they_should() -> None:
    since, rng = np.arange(-100, 2000), np.random.default_rng(0)
    for kind, share in SHARES.items():
        moved = share(since, rng)
        assert not moved[:100].any(), kind
        assert (moved.min(), moved.max()) == (0, 1), kind
    assert SHARES["recurring"](np.array([0, 249, 250, 499, 500]), rng).tolist() == [1, 1, 0, 0, 1]


def test_a_new_concept_costs_what_it_should(task: Task) -> None:
    before = task.net.judge(task.pool).losses
    rng = np.random.default_rng(0)
    moved = moved_labels(task.net, task.pool, np.ones(300), 0.5, task.pool, rng)
    after = task.net.judge(moved).losses
    assert after.mean() - before.mean() == pytest.approx(0.5 * before.std(), rel=0.5)


def test_blocks_are_neighbours() -> None:
    rows = resample(100, 60, 6, np.random.default_rng(0)).reshape(10, 6)
    assert np.array_equal((rows[:, 1:] - rows[:, :-1]) % 100, np.ones((10, 5)))


def test_the_rate_is_alarms_over_what_was_seen() -> None:
    highest = np.array([[0.0, 1, 2, 3], [0, 0, 0, 0]])
    assert rate_above(highest, 1.5, 32) == pytest.approx(1 / (3 + 4))
    assert rate_above(highest, 1.5, 1) == pytest.approx(32 / (3 + 4))


def test_delays_count_from_the_begin_and_earlier_alarms_start_anew(drawn: Drawn) -> None:
    kind = KINDS[0]
    streams = drawn.drifts[kind]

    def path(asked: str, number: int, first: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Alarms 50 samples after a start, and 7 after the drift's begin."""
        if not asked:
            return np.full(100, 0.5) + np.arange(100) / 1000 * (number % 2)
        found = np.zeros(int(streams.lengths[number]) - first)
        found[49 :: len(found)] = 0.9
        found[streams.begins[number] - first + 6 :] = 1
        return found if asked == kind else np.zeros_like(found)

    delays = sweep_paths(drawn, path, 1).delays(kind, streams)
    assert set(delays.tolist()) <= set(range(1, 8)), (
        "the seventh sample, or the fiftieth after a start where that is sooner"
    )
    assert 7 in delays


def test_our_monitors_see_a_real_drift_at_once(drawn: Drawn) -> None:
    level = ours.sweep(ours.MONITORS["loss-level"], drawn)
    assert level.rates[TARGET] == pytest.approx(RATES[TARGET], rel=0.5)
    assert np.mean(level.delays("real", drawn.drifts["real"])) < 64
    assert np.mean(level.delays("incremental", drawn.drifts["incremental"])) > 64


def test_the_label_free_monitor_is_swept_on_wide_streams(task: Task) -> None:
    wide = draw(task, SMALL, 0, wide=True)
    found = label_free.sweep(wide)
    assert np.mean(found.delays("real", wide.drifts["real"])) < 96
    assert {peer.fed for peer in (*LABELLED, *UNLABELLED)} == {"loss", "standard", "error", "features", "doubt"}
    assert inputs(wide, "features")["stationary"].shape == (12, 3200, 8)
    doubt = inputs(wide, "doubt")["drift:real"]
    assert doubt.min() >= 0
    assert doubt.max() <= 1


class Limit:
    """Alarms above a threshold."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold


def test_peers_are_swept_alike_by_threshold_and_by_statistic(drawn: Drawn) -> None:
    rng = np.random.default_rng(0)
    arrays = inputs(drawn, "loss")
    arrays["stationary"] = rng.exponential(1, arrays["stationary"].shape)
    job = {"budget_s": 60, "rates": RATES, "target": RATES[TARGET], "curve": True}
    limits = (Limit, lambda limit, value: bool(value > limit.threshold), 100.0, 0.01)
    one = by_threshold(arrays, limits, job)
    other = by_statistic(arrays, (lambda _: None, lambda _, value: float(value)), job)
    assert one["rates"][TARGET] == pytest.approx(RATES[TARGET], rel=0.25)
    assert one["thresholds"] == pytest.approx(other["thresholds"], rel=0.1)
    assert np.array_equal(one["alarms:real"][TARGET] < 0, other["alarms:real"][TARGET] < 0)


def test_what_is_kept_is_not_run_again_and_what_is_left_is_told(drawn: Drawn, tmp_path: Path) -> None:
    quick, slow = Peer("river", "ADWIN", "loss", 10), Peer("river", "KSWIN", "loss", 50)
    result(quick, "toy", tmp_path).touch()
    progress = Progress.of((quick, slow), ("toy", "other"), tmp_path)
    assert progress.todo == [(slow, "toy"), (quick, "other"), (slow, "other")]
    assert "1 results are kept" in progress.told()
    assert progress.left_s == 110
    swept = Swept(np.full(len(RATES), 1e-3), {"real": np.zeros((len(RATES), 7), np.intp)})
    progress.start()
    told = progress.end(swept)
    assert told.startswith("  1 of 3: river KSWIN (loss) on toy, 1.0e-03 false alarms a batch, 7 starting points")
    assert progress.left_s == pytest.approx(60 * progress.spent_s / 50)


def test_a_folder_is_about_the_streams_that_it_was_made_with(task: Task, drawn: Drawn, tmp_path: Path) -> None:
    claim(tmp_path, drawn, "labelled")
    claim(tmp_path, drawn, "labelled")
    with pytest.raises(ValueError, match="other labelled streams of toy"):
        claim(tmp_path, draw(task, SMALL, 1), "labelled")


def test_slower_detectors_have_fewer_starting_points() -> None:
    assert [starts_of(us) for us in (1, 10, 100, 1000)] == [None, 48, 24, 12]


def swept(drawn: Drawn, delay: int, rate: float = 1e-3) -> Swept:
    """A detector that always takes so long."""
    alarms = {k: np.tile(s.begins + delay - 1, (len(RATES), 1)) for k, s in drawn.drifts.items()}
    return Swept(np.array([3 * rate, rate, 0.3 * rate]), alarms)


def test_ratios_are_paired_and_kept(drawn: Drawn, tmp_path: Path) -> None:
    swept_all = {
        "ours": swept(drawn, 50),
        "quick": swept(drawn, 40),
        "slow": swept(drawn, 90),
        "loose": swept(drawn, 10, rate=2e-3),
    }
    every = verdict.cells(drawn, swept_all, "ours")
    assert every[0].best(frozenset({"ours"})) == "quick", "the loose one is not at the rate"
    assert verdict.ratio(every, ["quick"] * len(every)).value == pytest.approx(1.25)
    assert verdict.by_category(every, frozenset({"ours"}))["real toy"][0].upper == pytest.approx(1.25)
    assert "**1.25 (1.25)**" in verdict.table(every, frozenset({"ours"}))
    (loose,) = verdict.partly(every, frozenset({"ours"}))
    assert (loose.detector, loose.task, loose.starts) == ("loose", "toy", SMALL.starts)
    assert (loose.rate, loose.relative.value) == pytest.approx((2e-3, 5))
    save({}, [{"monitor": "earlier"}], tmp_path)
    save({"labelled": (every, frozenset({"ours"}))}, [], tmp_path)
    kept = json.loads((tmp_path / "drift_monitors.json").read_text(encoding="utf-8"))
    assert kept["cost"] == [{"monitor": "earlier"}], "what was not run now stays"
    assert [row["ratio"] for row in kept["labelled_cells"]] == [1.25] * len(KINDS)
    assert (tmp_path / "drift_monitors_labelled.svg").read_text(encoding="utf-8").count("<polyline") >= 4 * len(KINDS)


def test_peers_that_are_run_later_are_added_to_what_is_saved(drawn: Drawn, tmp_path: Path) -> None:
    own = frozenset({"ours"})
    path = save(
        {"labelled": (verdict.cells(drawn, {"ours": swept(drawn, 50), "quick": swept(drawn, 40)}, "ours"), own)},
        [{"monitor": "earlier"}],
        tmp_path,
    )
    before = json.loads(path.read_text(encoding="utf-8"))
    later = {"ours": swept(drawn, 50), "slow": swept(drawn, 90), "loose": swept(drawn, 60, rate=2e-3)}
    add({"labelled": (verdict.cells(drawn, later, "ours"), own)}, tmp_path)
    after = json.loads(path.read_text(encoding="utf-8"))
    assert [row["detector"] for row in after["labelled_overall"]] == ["quick", "ours", "slow"]
    assert [row["detector"] for row in after["labelled_partly"]] == ["loose"]
    assert len(after["labelled_delays"]) == 4 * len(KINDS)
    for name in ("labelled_cells", "labelled_categories", "cost"):
        assert after[name] == before[name]


def test_a_peer_that_is_added_may_be_the_best(drawn: Drawn, tmp_path: Path) -> None:
    own = frozenset({"ours"})
    first = verdict.cells(drawn, {"ours": swept(drawn, 50), "quick": swept(drawn, 40)}, "ours")
    path = save({"labelled": (first, own)}, [], tmp_path)
    later = verdict.cells(drawn, {"ours": swept(drawn, 50), "quickest": swept(drawn, 20)}, "ours")
    add({"labelled": (later, own)}, tmp_path)
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert {(row["best_peer"], row["ratio"], row["upper"]) for row in kept["labelled_cells"]} == {
        ("quickest", 2.5, 2.5)
    }
    told = {(row["best_single_peer"], *row["to_cells_best"], *row["to_single"]) for row in kept["labelled_categories"]}
    assert told == {("quickest", 2.5, 2.5, 2.5, 2.5)}


def test_peers_of_other_streams_are_not_added(drawn: Drawn, tmp_path: Path) -> None:
    own = frozenset({"ours"})
    first = verdict.cells(drawn, {"ours": swept(drawn, 50), "quick": swept(drawn, 40)}, "ours")
    path = save({"labelled": (first, own)}, [], tmp_path)
    before = path.read_bytes()
    later = verdict.cells(drawn, {"ours": swept(drawn, 51), "other": swept(drawn, 90)}, "ours")
    with pytest.raises(ValueError, match="ours was saved on other streams"):
        add({"labelled": (later, own)}, tmp_path)
    assert path.read_bytes() == before

import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.cohorts_data.real import Samples
from tests.benchmarks.fed_ade import main, select
from tests.benchmarks.fed_ade_data.arms import ORDER, Result, fixed_rates, run_arms
from tests.benchmarks.fed_ade_data.corruptions import CORRUPTIONS
from tests.benchmarks.fed_ade_data.fleet import averaged, draw, follow
from tests.benchmarks.fed_ade_data.keep import save
from tests.benchmarks.fed_ade_data.nets import SOURCE, Live, dense_net, small_cnn
from tests.benchmarks.fed_ade_data.schedules import SCHEDULES
from tests.benchmarks.fed_ade_data.served import ARMS, Served, serve
from tests.benchmarks.fed_ade_data.served import table as served_table
from tests.benchmarks.fed_ade_data.tasks import Task, image_pool, label_pool, make_bundle
from tests.benchmarks.fed_ade_data.verdict import gain_table, gains, table
from tests.benchmarks.run_lines import add_lines, read_lines

CLASSES = 3


def _samples(count: int, seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    centres = np.random.default_rng(1).uniform(0.2, 0.8, (CLASSES, 16))
    return Samples((centres[labels] + rng.normal(0, 0.1, (count, 16))).astype(np.float32), labels)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("fed-ade")
    bundle = make_bundle(dense_net((16, 8, CLASSES), SOURCE, 0), _samples(300, 2), _samples(200, 3), 8, folder)
    pool = image_pool(_samples(300, 4), (1, 4, 4))
    return Task("toy", "covariate", bundle, frozenset({"dense2.weight", "dense2.bias"}), 2, 12, CLASSES, pool, 0.3)


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_schedules_begin_where_the_net_was_made_for_and_stay_in_bounds(name: str) -> None:
    moved = SCHEDULES[name](100, np.random.default_rng(0))
    assert len(moved) == 100
    assert moved[0] == (0.5 if name == "sine" else 0)
    assert (moved.min(), moved.max()) == (pytest.approx(0, abs=0.03), pytest.approx(1, abs=0.03))
    if name == "square":
        assert np.array_equal(np.flatnonzero(np.diff(moved)), np.arange(4, 99, 5)), "half of the period of ten"


def test_corruptions_at_share_zero_change_nothing() -> None:
    images = np.random.default_rng(0).random((3, 1, 14, 14)).astype(np.float32)
    for name, corruption in CORRUPTIONS.items():
        assert corruption(images, 0.0, np.random.default_rng(0)) == pytest.approx(images), name
        changed = corruption(images, 1.0, np.random.default_rng(0))
        assert changed.shape == images.shape
        assert changed.dtype == np.float32
        assert np.abs(changed - images).mean() > 0.1, name


def test_a_live_net_says_what_the_bundle_says(task: Task) -> None:
    features = {SOURCE: _samples(5, 6).features}
    weights = task.bundle.initial_weights()
    hidden = np.maximum(features[SOURCE] @ weights["dense1.weight"].T + weights["dense1.bias"], 0)
    outputs = Live(task.bundle).run(weights, features)
    assert outputs["logits"] == pytest.approx(hidden @ weights["dense2.weight"].T + weights["dense2.bias"], abs=1e-5)
    assert sum(int(np.prod(tensor.dims)) for tensor in small_cnn(0).graph.initializer) == 38_714


def test_shared_tensors_are_averaged_and_personal_ones_stay() -> None:
    one, other = ({"s": np.full(2, v, np.float32), "p": np.full(1, v, np.float32)} for v in (1.0, 3.0))
    first, second = averaged([one, other], frozenset({"p"}))
    assert (first["s"].tolist(), second["s"].tolist()) == ([2, 2], [2, 2])
    assert (first["p"].tolist(), second["p"].tolist()) == ([1], [3])


def test_all_arms_see_the_same_streams_and_a_run_repeats(task: Task) -> None:
    setting = draw(task, "square", 1000)
    again = draw(task, "square", 1000)
    for mine, theirs in zip(setting.batches, again.batches, strict=True):
        assert all(np.array_equal(a.features, b.features) for a, b in zip(mine, theirs, strict=True))
    results = run_arms(setting)
    assert [result.arm for result in results] == list(ORDER)
    assert results == run_arms(again)
    by_arm = {result.arm: result for result in results}
    assert by_arm["its mean"].rate == pytest.approx(by_arm["scaled"].rate)
    assert [by_arm[f"fixed {n}"].rate for n in range(1, 6)] == pytest.approx(fixed_rates(0.3))
    assert by_arm["none"].served == by_arm["shares only"].served, "no shares are estimated under covariate shift"
    assert follow(setting, 0.03, 0.03).served == by_arm["fixed 3"].served


def test_shares_alone_help_where_only_shares_move(task: Task) -> None:
    shifted = Task("toy", "label", task.bundle, task.personal, 2, 12, CLASSES, label_pool(_samples(300, 4)), 0.3)
    by_arm = {result.arm: result for result in run_arms(draw(shifted, "linear", 1000))}
    assert by_arm["shares only"].served >= by_arm["none"].served


def _result(arm: str, served: float, seed: int) -> Result:
    rate = None if arm == "none" else 0.01 * (1 + ORDER.index(arm))
    return Result("toy", "label", "linear", seed, arm, served, served + 0.01, rate)


def test_gains_are_paired_and_kept(tmp_path: Path) -> None:
    served = {arm: 0.5 + 0.01 * number for number, arm in enumerate(ORDER)}
    results = [_result(arm, value + 0.1 * seed, seed) for seed in (0, 1) for arm, value in served.items()]
    results.append(_result("none", 0.1, 2))  # a seed that lacks arms counts for nothing
    raw, scaled = gains(results, ("raw", "scaled"))
    # the fixed rates are the third to seventh arm: mean 0.54, best 0.56
    assert (raw.seeds, raw.over_matched) == (2, None)
    assert [raw.over_mean, raw.over_best] == pytest.approx([3, 1])
    assert (scaled.over_mean, scaled.over_matched, scaled.over_none) == pytest.approx((4, -1, 8))
    assert raw.error == pytest.approx(0, abs=1e-9)
    assert "label shift, scaled: +4.00 points over the mean fixed rate (aim 1 to 4)" in gain_table([raw, scaled])
    assert table(results).count("\n") == 1
    save(results, tmp_path)
    kept = json.loads((tmp_path / "fed_ade.json").read_text(encoding="utf-8"))
    assert [row["arm"] for row in kept["runs"]] == list(ORDER)
    assert (tmp_path / "fed_ade_label.svg").read_text(encoding="utf-8").count("<circle") == 2
    add_lines(tmp_path / "runs.jsonl", results)
    file = tmp_path / "runs.jsonl"
    file.write_text(file.read_text(encoding="utf-8")[:-5], encoding="utf-8")
    assert read_lines(file, Result) == results[:-1]


def test_a_word_that_names_nothing_is_refused() -> None:
    assert select("gas label sine") == [("gas", "label", "sine")]
    assert len(select("")) == 24
    with pytest.raises(SystemExit, match="nothing is called 'sinus'"):
        select("sinus")


@pytest.mark.data
def test_a_quick_run_is_kept_and_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--quick", "--first-seed", "1000", "--lines", str(tmp_path / "runs.jsonl"), "--work", str(tmp_path)]
    main(words)
    first = capsys.readouterr().out
    assert "covariate shift, scaled: +" in first, "at this seed it gains"
    main(words)
    assert capsys.readouterr().out == first[first.index("task") :]


def test_a_gateway_that_follows_serves_otherwise_than_the_release_alone(tmp_path: Path, task: Task) -> None:
    setting = draw(task, "square", 0)
    right = {arm: serve(task, setting.batches[0], arm, tmp_path / arm.replace(" ", "-")) for arm in ARMS}
    sights = zip(setting.release[0], setting.batches[0], strict=True)
    alone = [float((s.probabilities.argmax(1) == b.labels).mean()) for s, b in sights if s.probabilities is not None]
    assert right["release"][0] == pytest.approx(np.mean(alone))
    assert right["no labels"][0] != right["release"][0]
    assert right["no labels"][1] == 0


def test_what_following_gains_as_it_serves_is_paired_by_seed() -> None:
    rows = [
        Served(task, kind, "square", seed, arm, right + seed, int(arm == "labels judge"))
        for task, kind in (("digits", "covariate"), ("gas", "covariate"))
        for seed in (0, 1)
        for arm, right in zip(ARMS, (70.0, 60.0 + 4 * seed, 72.0), strict=True)
    ]
    assert (
        served_table(rows).splitlines()[2]
        == "| covariate | digits | 70.5 | 62.5 (-8.0 ± 2.0) | 72.5 (+2.0 ± 0.0) | 2 |"
    )

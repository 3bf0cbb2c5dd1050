import json
from pathlib import Path

import numpy as np
import pytest

from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.evaluation import evaluate
from tests.benchmarks.cohorts_data.real import GRAPH
from tests.benchmarks.recurring import named, run, select
from tests.benchmarks.recurring_data.arms import ARMS
from tests.benchmarks.recurring_data.fleet import ROUNDS
from tests.benchmarks.recurring_data.keep import save
from tests.benchmarks.recurring_data.net import SOURCE, Net, make_bundle
from tests.benchmarks.recurring_data.oracles import cluster_distances, least, merge_groups
from tests.benchmarks.recurring_data.patterns import CLIENTS, STEPS, Pattern, read_pattern
from tests.benchmarks.recurring_data.run import Result, Setting
from tests.benchmarks.recurring_data.tasks import circle, make_tasks, sine, swapped
from tests.benchmarks.recurring_data.verdict import bar_table, bars
from tests.benchmarks.run_lines import add_lines, read_lines


def _pattern(*moves: tuple[int, int, int]) -> Pattern:
    """Everybody has concept 0, but for (from time step, client, concept)."""
    concepts = np.zeros((STEPS + 1, CLIENTS), np.intp)
    for began, client, concept in moves:
        concepts[began:, client] = concept
    return Pattern("T", concepts)


def test_a_pattern_counts_what_has_come_and_what_is_there(tmp_path: Path) -> None:
    pattern = _pattern((2, 0, 1), (4, 0, 0), (6, 3, 2))
    (tmp_path / "feddrift").mkdir()
    np.savetxt(tmp_path / "feddrift" / "T.cp", pattern.concepts, fmt="%d")
    read = read_pattern(tmp_path, "T")
    assert [read.present(now) for now in (0, 2, 5, 6)] == [1, 2, 1, 2]
    assert (read.needs, read.count) == (3, 3)
    np.savetxt(tmp_path / "feddrift" / "U.cp", pattern.concepts[:5], fmt="%d")
    with pytest.raises(ValueError, match="pattern U has shape"):
        read_pattern(tmp_path, "U")


def test_the_concepts_label_as_their_source_says() -> None:
    rng = np.random.default_rng(0)
    one, other = (sine(np.random.default_rng(1), concept, 200) for concept in (0, 1))
    assert np.array_equal(one.labels, 1 - other.labels)
    x, y = (one.features.T + 1) / 2
    assert np.array_equal(one.labels, (y <= np.sin(x)).astype(int))
    for concept, radius in ((0, 0.15), (1, 0.25)):
        inside = 1 - circle(rng, concept, 20_000).labels.mean()
        assert inside == pytest.approx(np.pi * radius**2, abs=0.01)
    digits = np.arange(10)
    assert np.array_equal(swapped(digits, 0), digits)
    for concept in (1, 2, 3):
        assert (swapped(digits, concept) != digits).sum() == 4
        assert np.array_equal(swapped(swapped(digits, concept), concept), digits)


def test_the_net_trains_and_scores_as_the_product_does(tmp_path: Path) -> None:
    samples = sine(np.random.default_rng(0), 0, 64)
    bundle = make_bundle((2, 8, 2), samples, 3, tmp_path)
    base, net = bundle.initial_weights(), Net(bundle)
    batches = [samples.take(np.arange(first, first + 16)) for first in (0, 16, 32)]
    trained = net.train(base, batches, 0.05)
    step = TrainingStep(bundle, GRAPH, base)
    for batch in batches:
        step.step({SOURCE: batch.features}, batch.labels, learning_rate=0.05)
    for name, tensor in step.weights().items():
        assert np.array_equal(trained[name], tensor)
    found = evaluate(InferenceModel(bundle, trained), bundle.manifest, {SOURCE: samples.features}, samples.labels)
    assert net.loss(trained, samples) == pytest.approx(found.loss, rel=1e-5)
    assert net.accuracy(trained, samples) == found.accuracy


def test_feddrift_merges_by_complete_linkage_on_what_models_lose_on_each_others_data() -> None:
    losses = np.array([[0.1, 0.15, 0.9], [0.3, 0.2, 0.9], [0.8, 0.9, 0.4]])
    distances = cluster_distances(losses)
    # D(0, 1) = max(0.15 - 0.1, 0.3 - 0.2); D(0, 2) = max(0.9 - 0.1, 0.8 - 0.4); D(1, 2) = max(0.9 - 0.2, 0.9 - 0.4)
    assert distances == pytest.approx(np.array([[0, 0.1, 0.8], [0.1, 0, 0.7], [0.8, 0.7, 0]]))
    assert merge_groups(distances, 0.2) == [[0, 1]]
    assert merge_groups(distances, 0.05) == []
    assert merge_groups(distances, 0.75) == [[0, 1]], "complete linkage: 0 and 2 are too far apart"
    assert merge_groups(distances, 0.9) == [[0, 1, 2]]
    assert merge_groups(np.zeros((1, 1)), 1.0) == []


def test_ifca_takes_the_model_with_the_least_loss() -> None:
    assert least({4: 0.3, 2: 0.1, 7: 0.1}) == 2


@pytest.mark.long
def test_a_concept_that_comes_and_goes_leaves_every_arm_with_two_models() -> None:
    pattern = _pattern((3, 0, 1), (3, 1, 1), (5, 0, 0), (7, 0, 1))
    setting = Setting(make_tasks(Path())["SINE-2"], pattern, 1000)
    results = {arm: setting.run(arm) for arm in ("ours", "ours-on-demand", "FedDrift")}
    for arm, result in results.items():
        parted_at_once = [1.0] * STEPS
        # FedDrift isolates first and merges a time step later
        expected = [*parted_at_once[:3], pytest.approx(0.95, abs=0.01), *parted_at_once[4:]]
        assert result.agreement == (expected if arm == "FedDrift" else parted_at_once), arm
        assert (result.kept[-1], result.in_use[-1]) == (2, 2), arm
    ours, frugal, feddrift = results.values()
    assert ours.flags == ours.drifts == frugal.flags
    assert (ours.traffic, ours.evaluations) == (2 * ROUNDS * STEPS, 0)
    # four rounds at the start and at the new concept, one at each of its two returns
    assert (frugal.downloads - frugal.evaluations, frugal.uploads) == (10, 10)
    assert ours.traffic < feddrift.traffic
    assert ours.mean_next > 0.93


def _result(arm: str, accuracy: float, kept: int, pattern: str = "A", seed: int = 0) -> Result:
    steps = [accuracy] * STEPS
    counts = [kept] * STEPS
    zeros, two = [0] * STEPS, [2] * STEPS
    sent = 10.0 * kept
    return Result("T", pattern, arm, seed, steps, steps, counts, counts, steps, zeros, zeros, 2, two, sent, 0.0, 0.0, 4)


def test_bars_hold_or_are_missed_by_the_mean_and_name_the_patterns_that_miss() -> None:
    runs = [_result("ours", 0.90, 2), _result("true", 0.9099, 2), _result("FedDrift", 0.90, 9)]
    runs += [_result("ours", 0.88, 5, "B"), _result("true", 0.91, 2, "B"), _result("FedDrift", 0.92, 9, "B")]
    alone = _result("true", 0.5, 2, "C")  # a run that ours lacks counts for nothing
    found = {bar.claim[0]: bar for bar in bars([*runs, alone])}
    values = {claim: bar.value for claim, bar in found.items()}
    # points behind, the share of models sent, cohorts above the two concepts; no bar without its rival
    assert values == pytest.approx({"1": 1.995, "2": 2.0, "3": 35 / 90, "6": 1.5})
    assert {claim for claim, bar in found.items() if bar.held} == {"1"}
    assert [found[claim].exceptions for claim in "1236"] == ["B", "B", "B", "B"]
    assert "MISSED, missed by B" in bar_table(bars(runs))


def test_a_run_that_was_stopped_goes_on_after_the_last_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    assert read_lines(file, Result) == []
    add_lines(file, [_result("ours", 0.9, 2)])
    add_lines(file, [_result("true", 0.9, 2)])
    file.write_text(file.read_text(encoding="utf-8")[:-5], encoding="utf-8")
    assert read_lines(file, Result) == [_result("ours", 0.9, 2)]


def test_what_is_kept_has_a_mean_over_seeds_and_a_chart_of_both_panels(tmp_path: Path) -> None:
    save([_result("ours", 0.9, 2), _result("ours", 0.8, 4, seed=1), _result("true", 0.9, 2)], tmp_path)
    kept = json.loads((tmp_path / "recurring.json").read_text(encoding="utf-8"))
    assert [(row["arm"], row["seeds"]) for row in kept["runs"]] == [("ours", [0, 1]), ("true", [0])]
    assert kept["runs"][0]["next_step"] == pytest.approx([0.85] * STEPS)
    drawn = (tmp_path / "recurring_T.svg").read_text(encoding="utf-8")
    assert drawn.count("<polyline") == 4
    assert drawn.count("<circle") == STEPS


@pytest.mark.data
def test_runs_that_are_on_disk_are_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, choices = tmp_path / "runs.jsonl", select(quick=True, words="true IFCA")
    assert [(task.name, pattern, arm) for task, pattern, arm in choices] == [
        ("SINE-2", "A", "IFCA"),
        ("SINE-2", "A", "true"),
    ]
    first = run(choices, [1000], [], file)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run(choices, [1000], read_lines(file, Result), file) == first
    assert capsys.readouterr().out == ""
    assert [result.agreement for result in first] == [[1.0] * STEPS] * 2


def test_a_word_that_names_nothing_is_refused() -> None:
    tasks = make_tasks(Path())
    choices = [(tasks[name], pattern, arm) for name in ("SINE-2", "SEA-4") for pattern in "AB" for arm in ARMS]
    assert {(task.name, pattern) for task, pattern, _ in named(choices, ["SEA-4", "ours"])} == {
        ("SEA-4", "A"),
        ("SEA-4", "B"),
    }
    assert {arm for _, _, arm in named(choices, ["B", "ours", "FedDrift"])} == {"ours", "FedDrift"}
    with pytest.raises(SystemExit, match="nothing is called 'Sea'"):
        named(choices, ["Sea"])

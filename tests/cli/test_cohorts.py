"""``server-bridge cohorts``, as typed, on the store that real adaptations have written."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge_agent.errors import ConfigError
from server_bridge.cli.cohort_chart import Column, cohort_chart
from server_bridge.cli.commands import app
from server_bridge.store.decisions import Fact
from server_bridge.store.view import fleet_view
from tests.flower.memory_fleet import with_update
from tests.rounds.bench import Bench
from tests.rounds.test_controller import bench, flag_four

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def side(tmp_path: Path) -> Bench:
    made = bench(tmp_path)
    (tmp_path / "bridge.toml").write_text('[bridge]\nfleet = "plant"\n')
    for node, gateway in enumerate(made.fleet.members, start=1):
        made.store.gateways.register(gateway, node, 0.0)
    return made


@pytest.fixture
def settings(side: Bench, tmp_path: Path) -> str:
    """Of a bridge that has parted two families from the rest, and then a third."""
    flag_four(side)
    side.look()
    side.clock.now_s += 60
    side.flag("g5")
    side.clock.now_s += 10
    side.look()
    side.store.close()
    return str(tmp_path / "bridge.toml")


def _typed(*words: str) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_cohorts_and_their_members_are_shown(settings: str) -> None:
    told = json.loads(_typed("cohorts", "--json", "-c", settings))
    assert [(each["id"], each["members"]) for each in told["cohorts"]] == [
        ("root", ["g6"]),
        ("c1", ["g1", "g2"]),
        ("c2", ["g3", "g4"]),
        ("c3", ["g5"]),
    ]
    shown = _typed("cohorts", "-c", settings)
    assert "a1, round 1" in shown
    assert "g3 g4" in shown


def test_the_history_tells_every_move_and_its_reason(settings: str) -> None:
    lines = _typed("cohorts", "--history", "-c", settings).splitlines()
    assert len(lines) == 11
    assert (
        "[a1, round 1] g1: root -> c1: drifted: drifted, and grouped by how (similarity 1, standard error" in lines[1]
    )
    assert "[a2, round 1] g5: root -> c3: drifted" in lines[-1]
    told = json.loads(_typed("cohorts", "--history", "--json", "-c", settings))
    assert [each["gateway"] for each in told["moves"]][-1] == "g5"
    assert told["ended"] == []


def test_a_gateways_cohort_is_explained_with_statistic_neighbours_and_words(side: Bench, settings: str) -> None:
    again = bench(Path(settings).parent, made=side.fleet)
    facts = {
        "client": "g1",
        "own": {"client": "g2", "similarity": 0.52, "standard_error": 0.04},
        "other": {"client": "g3", "similarity": 0.11, "standard_error": 0.03},
        "similarity": 0.5,
        "standard_error": 0.02,
        "threshold": 0.3,
        "rule": "within-noise",
        "sentence": "g1 changed as its group did",
    }
    move = again.store.lineage.moves(gateway="g1")[-1]
    again.store.lineage.move([replace(move, source="c1", target="c1", statistics=facts)])
    again.store.close()
    words = _typed("cohorts", "explain", "g1", "-c", settings)
    for part in (
        "g1 is in cohort c1, with g2",
        "similarity 0.5",
        "threshold 0.3",
        "nearest in its group: g2, similarity 0.52, standard error 0.04",
        "nearest outside it: g3, similarity 0.11",
        "rule: within-noise",
        "in words: g1 changed as its group did",
        "the way here:",
    ):
        assert part in words, words
    assert json.loads(_typed("cohorts", "explain", "g1", "--json", "-c", settings))["cohort"] == "c1"
    assert "g6 is in cohort root, by itself" in _typed("cohorts", "explain", "g6", "-c", settings)


def test_what_a_merge_did_to_a_gateway_is_explained(side: Bench, settings: str) -> None:
    again = bench(Path(settings).parent, made=side.fleet)
    move = again.store.lineage.moves(gateway="g5")[-1]
    again.store.lineage.move([replace(move, source="c3", target="c1", reason="merge-asked", statistics={})])
    harm: dict[str, Fact] = {"request": 1, "gateway": "g5", "gone": "c3"}
    again.store.decisions.record("cohorts", "merge-harms", "g5: holdout accuracy 96% -> 8%", 1.0, facts=harm)
    again.store.close()
    words = "since that merge: g5: holdout accuracy 96% -> 8%"
    assert words in _typed("cohorts", "explain", "g5", "-c", settings)
    assert "merge_harms" in json.loads(_typed("cohorts", "explain", "g5", "--json", "-c", settings))
    assert "since that merge" not in _typed("cohorts", "explain", "g1", "-c", settings)


def test_the_picture_has_a_cell_for_every_gateway_and_round_and_nothing_from_elsewhere(
    settings: str, tmp_path: Path
) -> None:
    out = tmp_path / "cohorts.svg"
    assert "4 rounds" in _typed("cohorts", "plot", "-o", str(out), "-c", settings)
    picture = ElementTree.fromstring(out.read_text())
    titles = [each.text or "" for each in picture.iter(f"{SVG}title")]
    assert len(titles) == 6 * 4
    assert "g1: c1 after a1, round 1, drifted from root" in titles
    assert "g6: root after a2, round 2" in titles
    words = {each.text for each in picture.iter(f"{SVG}text")}
    assert {"g1", "c3", "a1", "a2", "2 now"} <= words
    assert "href" not in out.read_text()
    assert float(picture.attrib["viewBox"].split()[2]) > 0


def test_the_reason_in_words_names_gateways(settings: str) -> None:
    words = _typed("cohorts", "explain", "g1", "-c", settings)
    (sentence,) = [line for line in words.splitlines() if line.strip().startswith("in words:")]
    assert "g2" in sentence
    assert not re.search(r"\d{6,}", sentence)


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        (["cohorts", "-c", "other.toml", "explain", "g1"], "options stand before `explain`"),
        (["cohorts", "--json", "explain", "g1"], "options stand before `explain`"),
        (["cohorts", "plot", "-o", "."], "is no file"),
        (["cohorts", "plot", "-o", "/dev/null"], "is no file"),
        (["cohorts", "plot", "-o", "nowhere/x.svg"], "nowhere is no directory"),
    ],
)
def test_what_would_not_be_heard_or_would_be_written_over_is_refused(
    settings: str, typed: list[str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        CliRunner().invoke(app, typed, catch_exceptions=False)


def test_who_was_left_out_of_the_last_round_is_named_wherever_an_operator_looks(side: Bench, tmp_path: Path) -> None:
    side.fleet.members["g6"].tamper = with_update(lambda delta: {name: 0 * tensor for name, tensor in delta.items()})
    flag_four(side)
    side.look()
    side.store.close()
    config = str(tmp_path / "bridge.toml")
    why = "[a1, round 2] left out: zero-update: every weight is as it was sent"
    assert f"last round: {why}" in _typed("cohorts", "explain", "g6", "-c", config)
    assert "last round: [a1, round 2] counted" in _typed("cohorts", "explain", "g1", "-c", config)
    assert json.loads(_typed("cohorts", "explain", "g6", "--json", "-c", config))["last_round"]["counted"] is False
    assert "round 2 of 2: 5 of 6 gateways counted, 3 cohorts; g6 (zero-update) left out" in _typed("log", "-c", config)
    view = fleet_view(bench(tmp_path, made=side.fleet).store, None)
    assert {each.id: each.last_round.words() for each in view if each.last_round is not None}["g6"] == why


def test_an_ignored_gateway_is_called_so_in_every_view(settings: str, tmp_path: Path) -> None:
    _typed("gateway", "ignore", "g6", "--why", "stolen", "-c", settings)
    _typed("gateway", "ignore", "g3", "--why", "stolen", "-c", settings)
    line = "g6: ignored: stolen (`server-bridge gateway readmit g6` ends it)"
    assert _typed("cohorts", "explain", "g6", "-c", settings).splitlines()[0] == line
    assert "g3 (ignored) g4" in _typed("cohorts", "-c", settings)
    out = tmp_path / "cohorts.svg"
    _typed("cohorts", "plot", "-o", str(out), "-c", settings)
    assert {"g3 (ignored)", "g4"} <= {each.text for each in ElementTree.fromstring(out.read_text()).iter(f"{SVG}text")}


def test_a_cohort_without_members_is_called_emptied() -> None:
    columns = [Column("a1", number, {"g1": cohort}, {"g1"}, "done") for number, cohort in ((1, "c1"), (2, "root"))]
    drawn = ElementTree.fromstring(cohort_chart(columns, []))
    assert {"1 now", "emptied"} <= {each.text for each in drawn.iter(f"{SVG}text")}


def test_after_an_operators_merge_the_picture_counts_members_as_they_are_now() -> None:
    column = Column("a1", 1, {"g1": "c1", "g2": "c2"}, {"g1", "g2"}, "done")
    drawn = ElementTree.fromstring(cohort_chart([column], [], now={"g1": "c1", "g2": "c1"}))
    assert {"2 now", "emptied"} <= {each.text for each in drawn.iter(f"{SVG}text")}


def test_a_gateway_by_itself_is_not_likened_to_itself(settings: str) -> None:
    assert "similarity 1" not in _typed("cohorts", "explain", "g5", "-c", settings)
    assert "similarity" not in _typed("cohorts", "--history", "-c", settings).splitlines()[-1]


def test_before_any_round_it_says_so(side: Bench, tmp_path: Path) -> None:
    side.store.close()
    config = str(tmp_path / "bridge.toml")
    assert "no round has been committed yet" in _typed("cohorts", "-c", config)
    assert _typed("cohorts", "--history", "-c", config) == ""
    assert "g1 has taken part in no round yet" in _typed("cohorts", "explain", "g1", "-c", config)
    with pytest.raises(ConfigError, match="no round has been committed"):
        CliRunner().invoke(app, ["cohorts", "plot", "-o", "x.svg", "-c", config], catch_exceptions=False)
    with pytest.raises(ConfigError, match="'g9' is not registered"):
        CliRunner().invoke(app, ["cohorts", "explain", "g9", "-c", config], catch_exceptions=False)

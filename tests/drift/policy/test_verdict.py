from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.drift.finding import Finding
from edge_agent.drift.policy.table import TABLE, Event, Verdict, table_lines
from edge_agent.drift.policy.verdict import (
    Held,
    Labels,
    PolicyParams,
    PolicyState,
    Role,
    Ruling,
    activated,
    judge,
    level_of,
    may_flag,
)
from edge_agent.errors import DataError

DOCS = Path(__file__).parents[3] / "docs"
QUIET, WARN, ALARM = (Finding(value, threshold=2.0, warning_threshold=1.0) for value in (0.5, 1.5, 2.5))
PARAMS = PolicyParams(calm_batches=2, cooldown_batches=3)

findings = st.sampled_from([QUIET, WARN, ALARM])
roles = st.sampled_from(Role)
labels = st.sampled_from(Labels)
params = st.builds(
    PolicyParams,
    calm_batches=st.integers(1, 4),
    cooldown_batches=st.integers(0, 5),
    label_free=st.sampled_from(["always", "unlabelled", "never"]),
)
states = st.builds(
    PolicyState,
    verdict=st.sampled_from(Verdict),
    held=st.dictionaries(roles, st.builds(Held, level=st.sampled_from(Verdict), quiet=st.integers(0, 3))),
    cooling=st.integers(0, 5),
    flags=st.integers(0, 9),
)


def after(*steps: tuple[Role, Finding], params: PolicyParams = PARAMS, labels: Labels = Labels.DECIDE) -> list[Ruling]:
    state, rulings = PolicyState(), []
    for role, finding in steps:
        state, ruling = judge(params, state, role, finding, labels=labels)
        rulings.append(ruling)
    return rulings


def verdicts(rulings: list[Ruling]) -> list[str]:
    return [f"{ruling.verdict}{'!' if ruling.flags else ''}" for ruling in rulings]


def test_the_table_has_every_verdict_and_event_and_stands_in_the_docs() -> None:
    assert set(TABLE) == {(verdict, event) for verdict in Verdict for event in Event}
    assert "\n".join(table_lines()) in (DOCS / "drift.md").read_text(encoding="utf-8")


@given(params=params, state=states, role=roles, finding=findings, labels=labels)
def test_every_state_and_batch_gives_a_ruling_by_the_table(
    params: PolicyParams, state: PolicyState, role: Role, finding: Finding, labels: Labels
) -> None:
    following, ruling = judge(params, state, role, finding, labels=labels)
    move = TABLE[state.verdict, ruling.event]
    assert (ruling.verdict, ruling.flags) == (move.to, move.flags)
    assert following.verdict is ruling.verdict
    assert following.flags == state.flags + ruling.flags
    if ruling.flags:
        assert finding.alarm
        assert may_flag(params, role, labels=labels)
        assert state.verdict is not Verdict.ALARM
        assert state.cooling == 0
    if not finding.warning:
        assert ruling.event not in (Event.ALARM, Event.BARRED)
    if state.verdict is Verdict.ALARM and following.verdict is not Verdict.ALARM:
        assert following.cooling == params.cooldown_batches
    assert PolicyState.from_document(following.to_document()) == following


@given(params=params, steps=st.lists(st.tuples(roles, findings, labels), max_size=40))
def test_between_two_flags_lies_the_cool_down_and_a_calm(
    params: PolicyParams, steps: list[tuple[Role, Finding, Labels]]
) -> None:
    state, flagged = PolicyState(), []
    for place, (role, finding, good_for) in enumerate(steps):
        state, ruling = judge(params, state, role, finding, labels=good_for)
        if ruling.flags:
            flagged.append(place)
    assert all(later - earlier > params.cooldown_batches for earlier, later in pairwise(flagged))


@given(params=params, steps=st.lists(st.tuples(roles, findings), min_size=1, max_size=30))
def test_a_monitor_that_only_estimates_never_flags(params: PolicyParams, steps: list[tuple[Role, Finding]]) -> None:
    state = PolicyState()
    for _, finding in steps:
        state, ruling = judge(params, state, Role.ACCURACY, finding, labels=Labels.SCARCE)
        assert not ruling.flags
        assert ruling.verdict is not Verdict.ALARM


def test_an_alarm_flags_once_while_it_lasts_and_again_after_calm_and_cool_down() -> None:
    loss = [(Role.LABELLED, one) for one in (ALARM, ALARM, QUIET, QUIET, ALARM, QUIET, QUIET, QUIET, ALARM)]
    assert verdicts(after(*loss)) == [
        *("alarm!", "alarm", "alarm", "none", "warning", "warning", "none", "none", "alarm!"),
    ]


def test_an_alarm_that_outlasts_the_cool_down_is_flagged_then() -> None:
    loss = [(Role.LABELLED, one) for one in (ALARM, QUIET, QUIET, ALARM, ALARM, ALARM, ALARM)]
    assert verdicts(after(*loss)) == ["alarm!", "alarm", "none", "warning", "warning", "warning", "alarm!"]


def test_while_the_loss_is_fine_a_covariate_shift_is_a_warning() -> None:
    steps = [(Role.LABELLED, QUIET), (Role.LABEL_FREE, ALARM), (Role.LABELLED, QUIET), (Role.LABEL_FREE, ALARM)]
    assert verdicts(after(*steps)) == ["none", "warning", "warning", "warning"]
    assert verdicts(after(*steps, labels=Labels.SCARCE)) == ["none", "alarm!", "alarm", "alarm"]
    never = PolicyParams(label_free="never")
    assert verdicts(after(*steps, params=never, labels=Labels.SCARCE)) == ["none", "warning", "warning", "warning"]
    always = PolicyParams(label_free="always")
    assert verdicts(after(*steps, params=always)) == ["none", "alarm!", "alarm", "alarm"]


def test_biased_labels_cannot_flag_and_do_not_hold_the_label_free_alarm_back() -> None:
    assert verdicts(after((Role.LABELLED, ALARM), labels=Labels.BIASED)) == ["warning"]
    assert verdicts(after((Role.LABEL_FREE, ALARM), labels=Labels.BIASED)) == ["alarm!"]


def test_one_monitors_calm_does_not_end_anothers_alarm() -> None:
    steps = [(Role.LABELLED, ALARM), *[(Role.LABEL_FREE, QUIET)] * 5]
    assert verdicts(after(*steps)) == ["alarm!", *["alarm"] * 5]


@given(state=states)
def test_an_activation_ends_everything_but_the_count(state: PolicyState) -> None:
    following = activated(state)
    assert following == PolicyState(flags=state.flags)
    _, ruling = judge(PARAMS, following, Role.LABELLED, ALARM, labels=Labels.DECIDE)
    assert ruling.flags


@pytest.mark.parametrize("document", [None, {}, {"verdict": "loud", "held": {}, "cooling": 0, "flags": 0}, [1]])
def test_a_state_that_is_none_is_refused(document: object) -> None:
    with pytest.raises(DataError, match="drift policy"):
        PolicyState.from_document(document)


def test_levels_are_those_of_the_finding() -> None:
    assert [level_of(one) for one in (QUIET, WARN, ALARM)] == list(Verdict)


@pytest.mark.parametrize("name", ["calm_batches", "cooldown_batches", "label_rows", "label_delay_s"])
def test_constants_out_of_range_are_refused_by_name(name: str) -> None:
    with pytest.raises(DataError, match=name):
        PolicyParams(**{name: -1})  # type: ignore[arg-type]  # some are floats

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.ota.transitions import TRANSITIONS, OtaEvent, OtaState, document, next_state

DOCUMENT = Path(__file__).parents[2] / "docs" / "ota-states.md"


@given(st.lists(st.sampled_from(OtaEvent), max_size=60))
def test_any_sequence_of_events_stays_in_the_table(events: list[OtaEvent]) -> None:
    state = OtaState.IDLE
    for event in events:
        if (state, event) in TRANSITIONS:
            state = next_state(state, event)
            assert state in OtaState
        else:
            with pytest.raises(ValueError, match="no step"):
                next_state(state, event)


def test_every_state_is_reached_and_none_is_a_dead_end() -> None:
    reached, new = {OtaState.IDLE}, {OtaState.IDLE}
    while new:
        new = {target for (state, _), target in TRANSITIONS.items() if state in reached} - reached
        reached |= new
    assert reached == set(OtaState)
    assert {state for state, _ in TRANSITIONS} == set(OtaState)


def test_every_unsettled_state_survives_a_restart() -> None:
    settled = {state for (state, event) in TRANSITIONS if event is OtaEvent.MAP_ARRIVED}
    for state in set(OtaState) - settled:
        assert (state, OtaEvent.RESTARTED_OLD) in TRANSITIONS


def test_the_diagram_is_fresh() -> None:
    assert DOCUMENT.read_text() == document(), "run python -m edge_agent.ota.transitions > docs/ota-states.md"

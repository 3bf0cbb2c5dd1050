import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edge_agent.drift.arrays import decode_drift_arrays, encode_drift_arrays
from edge_agent.drift.faults import NAME, FaultParams, FaultState, step
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec
from tests.drift.faults.sensors import Readings, observed, params_of, screened, slow

PARAMS = params_of(slow(600, 4, 1))
ANY = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([0.0, np.nan, np.inf, -np.inf, 20.0, -9999.0])
)
TIMES = st.one_of(st.floats(-1e12, 1e12), st.sampled_from([np.nan, np.inf, -np.inf, 0.0]))


def stream(kind: str) -> Readings:
    readings = slow(900, 4, 2)
    readings[300:500, 1] = {"stuck": readings[300, 1], "missing": np.nan, "unit": readings[300:500, 1] * 10}[kind]
    return readings


@pytest.mark.parametrize("kind", ["stuck", "missing", "unit"])
def test_a_restart_anywhere_changes_nothing(kind: str) -> None:
    readings = stream(kind)
    whole = screened(PARAMS, readings, batch=25)
    for stop in range(0, 900, 75):
        before = screened(PARAMS, readings[:stop], batch=25) if stop else None
        state = FaultState.start(PARAMS) if before is None else before[0]
        again = FaultState.from_arrays(PARAMS, {name: array.copy() for name, array in state.to_arrays().items()})
        after = screened(PARAMS, readings[stop:], batch=25, state=again)
        told = [*(before[2] if before else []), *after[2]]
        assert [repr(report) for report in told] == [repr(report) for report in whole[2]]
        assert _bytes(after[0]) == _bytes(whole[0])


def test_a_state_is_of_one_size_and_small() -> None:
    sizes = {sum(array.nbytes for array in screened(PARAMS, stream(kind)[:rows])[0].to_arrays().values())
             for kind in ("stuck", "unit") for rows in (1, 400, 900)}  # fmt: skip
    assert len(sizes) == 1
    assert max(sizes) < 4 * 400


@pytest.mark.parametrize("name", ["clock", "0.sensors", "0.window"])
def test_a_damaged_state_is_refused_by_name(name: str) -> None:
    stored = screened(PARAMS, stream("stuck"))[0].to_arrays()
    for damage in (None, np.zeros((2, 2)), stored[name].astype(np.float32), np.full_like(stored[name], np.nan)):
        damaged = {**stored, name: damage} if damage is not None else {k: v for k, v in stored.items() if k != name}
        with pytest.raises(DataError, match=r"clock|sensors|window|NaN"):
            FaultState.from_arrays(PARAMS, damaged)


def test_constants_travel_in_a_bundle() -> None:
    spec, found = PARAMS.to_spec()
    spec = MonitorSpec.model_validate_json(spec.model_dump_json(by_alias=True))
    travelled = decode_drift_arrays(encode_drift_arrays({NAME: found}))[NAME]
    again = FaultParams.from_spec(spec, travelled, PARAMS.channels)
    readings = stream("unit")
    assert _bytes(screened(again, readings)[0]) == _bytes(screened(PARAMS, readings)[0])
    assert spec.false_alarm_rate > 0
    with pytest.raises(DataError, match="'span' is absent"):
        FaultParams.from_spec(spec, {k: v for k, v in travelled.items() if k != "span"}, PARAMS.channels)
    with pytest.raises(DataError, match="'low' has NaN"):
        FaultParams.from_spec(spec, {**travelled, "low": np.full(4, np.nan)}, PARAMS.channels)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(
        st.integers(0, 9).flatmap(
            lambda n: st.tuples(arrays(np.float64, (n, 4), elements=ANY), arrays(np.float64, n, elements=TIMES))
        ),
        max_size=12,
    )
)
def test_no_stream_is_too_strange(batches: list[tuple[Readings, Readings]]) -> None:
    """Whatever comes, the state stays storable, and what is not finite is broken."""
    state = FaultState.start(PARAMS)
    for readings, times in batches:
        state, found = step(PARAMS, state, observed(readings, times))
        broken = ~np.isfinite(readings)
        assert found.faulty is not None or not broken.any()
        assert found.faulty is None or (found.faulty | ~broken).all()
        state = FaultState.from_arrays(PARAMS, state.to_arrays())


def _bytes(state: FaultState) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in state.to_arrays().items()}

from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save

from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.tensors import Weights
from edge_agent.wire.updates import INT8_BLOCK, Coding, code_update, decode_update, encode_update, update_cap_bytes
from tests.wire.arrays import specs_of, weights

CODINGS: tuple[Coding, ...] = ("fp32", "fp16", "int8")
every_coding = pytest.mark.parametrize("coding", CODINGS)
W = [TrainableSpec(name="w", dtype="float32", shape=[4])]


@every_coding
@given(delta=weights())
def test_an_update_comes_back_within_its_codings_error(coding: Coding, delta: Weights) -> None:
    payload = encode_update(delta, coding)
    specs = specs_of(delta)
    assert len(payload) <= update_cap_bytes(specs)
    decoded = decode_update(payload, coding, specs)
    assert list(decoded) == [spec.name for spec in specs]
    for name, tensor in delta.items():
        assert decoded[name].dtype == np.float32
        assert decoded[name].shape == tensor.shape
        allowed = allowed_error(coding, tensor)
        assert (np.abs(decoded[name].astype(np.float64) - tensor) <= allowed).all()


@every_coding
@given(delta=weights())
def test_the_same_delta_gives_the_same_bytes(coding: Coding, delta: Weights) -> None:
    shuffled = {name: delta[name] for name in reversed(list(delta))}
    assert encode_update(delta, coding) == encode_update(shuffled, coding)


@given(delta=weights())
def test_fp32_is_exact(delta: Weights) -> None:
    decoded = decode_update(encode_update(delta, "fp32"), "fp32", specs_of(delta))
    assert {name: tensor.tobytes() for name, tensor in decoded.items()} == {
        name: tensor.tobytes() for name, tensor in delta.items()
    }


@every_coding
@given(payload=st.binary(max_size=200))
def test_any_bytes_are_an_update_or_a_wire_error(coding: Coding, payload: bytes) -> None:
    with pytest.raises(WireError):
        decode_update(payload, coding, W)


@every_coding
@given(delta=weights(), data=st.data())
def test_changed_bytes_are_an_update_or_a_wire_error(coding: Coding, delta: Weights, data: st.DataObject) -> None:
    """Changed both outside and inside the compression."""
    packed = bytearray(encode_update(delta, coding))
    raw = bytearray(zstandard.ZstdDecompressor().decompress(bytes(packed)))
    for payload in (packed, raw):
        position = data.draw(st.integers(0, min(len(payload) - 1, 300)))
        payload[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    for changed in (bytes(packed), zstandard.compress(bytes(raw))):
        try:
            decoded = decode_update(changed, coding, specs_of(delta))
        except WireError:
            continue
        assert {name: tensor.shape for name, tensor in decoded.items()} == {
            name: tensor.shape for name, tensor in delta.items()
        }
        assert all(np.isfinite(tensor).all() for tensor in decoded.values())


@every_coding
def test_an_update_in_another_coding_is_refused(coding: Coding) -> None:
    delta = {"w": np.ones(4, np.float32)}
    for other in CODINGS:
        if other != coding:
            with pytest.raises(WireError, match="'w'"):
                decode_update(encode_update(delta, other), coding, W)


@every_coding
@pytest.mark.parametrize(
    ("delta", "problem"),
    [
        ({"v": np.ones(4, np.float32)}, "missing tensor 'w'"),
        ({"w": np.ones(4, np.float32), "v": np.ones(1, np.float32)}, "extra tensor"),
        ({"w": np.ones(5, np.float32)}, "shape"),
        ({"w": np.ones((4, 1), np.float32)}, "shape"),
    ],
    ids=["missing", "extra", "longer", "other rank"],
)
def test_an_update_that_does_not_fit_is_refused_by_name(coding: Coding, delta: Weights, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode_update(encode_update(delta, coding), coding, W)


@every_coding
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_refused_by_name(coding: Coding, value: float) -> None:
    delta = {"w": np.array([1, value, 2, 3], np.float32)}
    if coding == "fp16" and np.isinf(value):
        assert np.abs(decode_update(encode_update(delta, coding), coding, W)["w"]).max() == 65504
        return
    with pytest.raises(WireError, match="'w' is not finite"):
        decode_update(encode_update(delta, coding), coding, W)


@pytest.mark.parametrize(
    "scale", [np.ones(2, np.float32), np.ones((1, 1), np.float32), np.ones(1, np.float64), None], ids=str
)
def test_int8_scales_that_do_not_fit_are_refused(scale: NDArray[Any] | None) -> None:
    coded: dict[str, NDArray[Any]] = {"code.w": np.ones(4, np.int8)}
    if scale is not None:
        coded["scale.w"] = scale
    with pytest.raises(WireError, match="scale"):
        decode_update(zstandard.compress(save(coded)), "int8", W)


def test_int8_values_that_overflow_are_refused() -> None:
    coded: dict[str, NDArray[Any]] = {"code.w": np.full(4, 127, np.int8), "scale.w": np.full(1, 3e38, np.float32)}
    with pytest.raises(WireError, match="not finite"):
        decode_update(zstandard.compress(save(coded)), "int8", W)


def test_an_update_larger_than_its_tensors_is_not_unpacked() -> None:
    bomb = zstandard.compress(bytes(100 * 1024 * 1024))
    with pytest.raises(WireError, match="cap"):
        decode_update(bomb, "fp32", W)


def test_the_cap_of_the_largest_manifest_is_no_overflow() -> None:
    specs = [TrainableSpec(name="w", dtype="float32", shape=[2**31] * 8)]
    assert update_cap_bytes(specs) > 2**250


def allowed_error(coding: Coding, tensor: NDArray[np.float32]) -> NDArray[np.float64]:
    """Half a step of the coding, per value, plus a float32 rounding."""
    values = np.abs(tensor.astype(np.float64))
    if coding == "fp32":
        return np.zeros_like(values)
    if coding == "fp16":
        rounding = np.maximum(values * 2.0**-11, 2.0**-25)
        return np.asarray(np.maximum(rounding, values - 65504), dtype=np.float64)
    flat = values.reshape(-1)
    largest = [flat[start : start + INT8_BLOCK].max() for start in range(0, flat.size, INT8_BLOCK)]
    step = np.repeat(np.asarray(largest) / 127, INT8_BLOCK)[: flat.size].reshape(values.shape)
    allowed: NDArray[np.float64] = step * 0.5 * (1 + 1e-4) + 127 * 1.5e-45
    return allowed


@pytest.mark.parametrize("coding", ["fp32", "fp16", "int8"])
def test_what_a_coding_loses_is_what_was_wanted_minus_what_arrives(coding: Coding) -> None:
    delta, earlier = _steps(1, 0.01), _steps(2, 0.0001)
    coded = code_update(delta, coding, earlier)
    arrived = decode_update(coded.payload, coding, specs_of(delta))
    for name, tensor in delta.items():
        np.testing.assert_allclose(arrived[name] + coded.residual[name], tensor + earlier[name], atol=1e-9)
    most = {"fp32": 0.0, "fp16": 1e-3, "int8": 0.02}[coding]
    assert (coded.error > 0) is (coding != "fp32")
    assert coded.error <= most
    assert code_update(delta, coding).payload == encode_update(delta, coding)


@pytest.mark.parametrize("odd", ["nan", "longer", "other shape", "other name"])
def test_an_odd_residual_is_as_none(odd: str) -> None:
    delta = _steps(1, 0.01)
    residual = {
        "nan": {name: np.full_like(tensor, np.nan) for name, tensor in delta.items()},
        "longer": _steps(2, 1.0),
        "other shape": {name: tensor.reshape(-1)[:1] for name, tensor in delta.items()},
        "other name": {"x": delta["w"]},
    }[odd]
    assert code_update(delta, "int8", residual).payload == encode_update(delta, "int8")
    nothing = {name: np.zeros_like(tensor) for name, tensor in delta.items()}
    assert code_update(nothing, "int8").error == 0.0


def test_many_rounds_of_int8_with_feedback_stay_near_fp32_and_without_drift_away() -> None:
    """Descent of a badly scaled least-squares problem; every round's step is sent as int8.

    Beside a few large values of a block the small ones are below half a step of the coding: without feedback they
    are lost in every round.
    """
    rng = np.random.default_rng(0)
    scales = np.where(np.arange(512) % 64 == 0, 1.0, 2e-3)
    target = rng.normal(size=512) * 3
    values = {arm: np.zeros(512, np.float32) for arm in ("fp32", "plain", "feedback")}
    residual: Weights | None = None
    for _ in range(300):
        noise = 0.05 * scales * rng.normal(size=512)
        deltas = {
            arm: {"w": (noise - 0.3 * scales * (value - target)).astype(np.float32)} for arm, value in values.items()
        }
        values["fp32"] += deltas["fp32"]["w"]
        values["plain"] += decode_update(encode_update(deltas["plain"], "int8"), "int8", [SPEC])["w"]
        coded = code_update(deltas["feedback"], "int8", residual)
        values["feedback"] += decode_update(coded.payload, "int8", [SPEC])["w"]
        residual = coded.residual
    away = {arm: float(np.linalg.norm(value - values["fp32"])) for arm, value in values.items()}
    assert away["feedback"] < 0.05 * away["plain"]


SPEC = TrainableSpec(name="w", dtype="float32", shape=[512])


def _steps(seed: int, scale: float) -> Weights:
    rng = np.random.default_rng(seed)
    return {"w": rng.normal(0, scale, (40, 30)).astype(np.float32), "b": rng.normal(0, scale, 7).astype(np.float32)}

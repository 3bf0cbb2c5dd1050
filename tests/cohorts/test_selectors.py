import numpy as np
import pytest

from server_bridge.cohorts.selectors import AllParams, DefaultSelector, LastLayers, NameFilter, TrainableTensors

PARAMS = {
    "conv.weight": np.full((2, 2), 1, np.float32),
    "bn.running_mean": np.full(2, 2, np.float32),
    "bn.num_batches_tracked": np.array(3),
    "head.weight": np.full((1, 2), 4, np.float32),
    "head.bias": np.full(1, 5, np.float32),
}


def test_all_params_takes_everything() -> None:
    assert AllParams().select(PARAMS) == list(PARAMS)


def test_the_default_leaves_batch_norm_statistics_out() -> None:
    assert DefaultSelector().select(PARAMS) == ["conv.weight", "head.weight", "head.bias"]
    assert DefaultSelector(extra_exclude=["bias"]).select(PARAMS) == ["conv.weight", "head.weight"]


def test_names_are_filtered_by_patterns() -> None:
    assert NameFilter(include=["^head"], exclude=["bias$"]).select(PARAMS) == ["head.weight"]


def test_the_last_layers_do_not_count_statistics() -> None:
    assert LastLayers(2).select(PARAMS) == ["head.weight", "head.bias"]
    with pytest.raises(ValueError, match="at least 1"):
        LastLayers(0)


def test_trainable_tensors_come_in_the_bundles_order() -> None:
    assert TrainableTensors(["head.bias", "conv.weight", "absent"]).select(PARAMS) == ["head.bias", "conv.weight"]


def test_vectors_are_float32_only_if_all_tensors_are() -> None:
    flat = DefaultSelector().flatten(PARAMS)
    assert flat.dtype == np.float32
    assert flat.tolist() == [1, 1, 1, 1, 4, 4, 5]
    assert AllParams().flatten(PARAMS).dtype == np.float64


def test_selecting_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="selects none"):
        NameFilter(include=["absent"]).flatten(PARAMS)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import log_softmax

from edge_agent.drift.losses import sample_losses, sample_right
from edge_agent.errors import DataError


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(0, 20), st.integers(2, 9)), elements=st.floats(-1e4, 1e4, width=32))
)
def test_cross_entropy_equals_scipy(logits: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    labels = np.arange(len(logits)) % logits.shape[1]
    expected = -log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(logits)), labels]
    np.testing.assert_allclose(sample_losses("cross-entropy", logits, labels), expected, rtol=1e-9, atol=1e-9)


def test_mse_takes_flat_and_column_values() -> None:
    values = np.array([1.0, 2.0, -3.0], dtype=np.float32)
    labels = np.array([0.0, 2.0, 1.0])
    for output in (values, values[:, None]):
        np.testing.assert_array_equal(sample_losses("mse", output, labels), [1.0, 0.0, 16.0])


def test_output_that_is_not_finite_gives_infinite_loss_and_is_not_right() -> None:
    logits = np.array([[np.nan, 0.0], [np.inf, 0.0], [5.0, 0.0]], dtype=np.float32)
    labels = np.zeros(3, dtype=np.int64)
    assert np.isinf(sample_losses("cross-entropy", logits, labels)).tolist() == [True, True, False]
    assert sample_right("classification", logits, labels).tolist() == [False, False, True]
    assert np.isinf(sample_losses("mse", np.array([np.nan, -np.inf]), np.zeros(2))).all()


def test_whole_float_labels_are_classes() -> None:
    logits = np.array([[0.0, 3.0]], dtype=np.float32)
    assert sample_right("classification", logits, np.array([1.0])).all()


@pytest.mark.parametrize("label", [-1.0, 2.0, 0.5, np.nan, np.inf])
def test_label_that_is_no_class_is_refused_by_name(label: float) -> None:
    with pytest.raises(DataError, match="no class"):
        sample_losses("cross-entropy", np.zeros((1, 2), dtype=np.float32), np.array([label]))


def test_target_that_is_not_finite_is_refused() -> None:
    with pytest.raises(DataError, match="not finite"):
        sample_losses("mse", np.zeros(1), np.array([np.nan]))


@pytest.mark.parametrize(("shape", "labels"), [((2, 3), 3), ((3,), 3), ((3, 1), 3), ((3, 2, 2), 3)])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...], labels: int) -> None:
    with pytest.raises(DataError, match="do not fit"):
        sample_losses("cross-entropy", np.zeros(shape), np.zeros(labels, dtype=np.int64))


def test_a_regression_is_never_right() -> None:
    assert not sample_right("regression", np.zeros(4), np.zeros(4)).any()


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_one_logit_is_that_of_class_one(shape: tuple[int, ...]) -> None:
    z, labels = np.array([-3.0, 0.5, 800.0, np.nan]), np.array([0, 0, 1, 1])
    losses = sample_losses("binary-cross-entropy", z.reshape(shape).astype("f4"), labels)
    np.testing.assert_allclose(losses[:3], [np.log1p(np.exp(-3)), np.log1p(np.exp(0.5)), 0.0], rtol=1e-9)
    assert np.isinf(losses[3])
    pair = np.stack([np.zeros(4), z], axis=1)
    np.testing.assert_allclose(losses[:3], sample_losses("cross-entropy", pair, labels)[:3], rtol=1e-9, atol=1e-12)
    assert sample_right("classification", z.reshape(shape), labels).tolist() == [True, False, True, False]


@pytest.mark.parametrize("label", [-1, 2, 0.5])
def test_label_that_is_neither_zero_nor_one_is_refused(label: float) -> None:
    for score in (
        lambda y: sample_losses("binary-cross-entropy", np.zeros(1), y),
        lambda y: sample_right("classification", np.zeros(1), y),
    ):
        with pytest.raises(DataError, match=r"no class of 0..1"):
            score(np.array([label]))


def test_absolute_and_hubers_errors() -> None:
    values, labels = np.array([1.0, -2.0, 5.0, np.inf]), np.array([1.0, 0.0, 0.0, 0.0])
    assert sample_losses("mae", values, labels).tolist() == [0.0, 2.0, 5.0, np.inf]
    assert sample_losses("huber", values, labels, delta=3.0).tolist() == [0.0, 2.0, 10.5, np.inf]

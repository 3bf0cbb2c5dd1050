import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from server_bridge.demo.data import INPUT
from server_bridge.demo.net import OUTPUT, draw_net, trainable_parameters

MEAN = np.zeros(6, np.float32)
DEVIATION = np.full(6, 2, np.float32)


def logits_of(model: onnx.ModelProto, windows: NDArray[np.float32]) -> NDArray[np.float32]:
    (logits,) = ReferenceEvaluator(model).run([OUTPUT], {INPUT: windows})
    return np.asarray(logits, np.float32)


def test_the_net_has_the_recipes_size() -> None:
    assert trainable_parameters(draw_net(MEAN, DEVIATION, classes=7, seed=0)) == 26_327


def test_the_net_takes_any_batch_of_windows() -> None:
    net = draw_net(MEAN, DEVIATION, classes=7, seed=0)
    for batch in (1, 5):
        windows = np.random.default_rng(0).normal(size=(batch, 6, 100)).astype(np.float32)
        logits = logits_of(net, windows)
        assert logits.shape == (batch, 7)
        assert np.isfinite(logits).all()


def test_the_net_standardises_its_input() -> None:
    windows = np.random.default_rng(0).normal(size=(3, 6, 100)).astype(np.float32)
    shifted = draw_net(MEAN + 1, DEVIATION * 3, classes=7, seed=0)
    plain = draw_net(MEAN, np.ones(6, np.float32), classes=7, seed=0)
    np.testing.assert_allclose(logits_of(shifted, windows * 6 + 1), logits_of(plain, windows), rtol=1e-4, atol=1e-4)


def test_the_seed_decides_the_weights() -> None:
    first, again, other = (draw_net(MEAN, DEVIATION, classes=7, seed=seed) for seed in (0, 0, 1))
    assert first.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert first != other
    onnx.checker.check_model(other, full_check=True)

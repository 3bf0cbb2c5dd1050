"""The oracle's noise: what it is told of is about as large in every direction afterwards, all else is left."""

import numpy as np

from tests.benchmarks.cohort_oracle import Noise, roots, unit


def test_known_noise_is_made_as_large_as_the_least_of_it() -> None:
    rng = np.random.default_rng(0)
    scales = np.array([10.0, 3.0, 1.0, 0.0, 0.0])
    batches = [rng.normal(size=(400, 5)) * scales + mean for mean in (0.0, 50.0)]
    noise = Noise.of(batches, 0.01)
    after = noise.whitened(rng.normal(size=(4000, 5)) * scales).std(0)
    np.testing.assert_allclose(after[:3], 1 / np.sqrt(1 / scales[:3] ** 2 + 1), rtol=0.1)  # 1: a tenth of the largest
    np.testing.assert_allclose(noise.whitened(np.array([[0.0, 0.0, 0.0, 2.0, 3.0]])), [[0, 0, 0, 2, 3]], atol=1e-9)


def test_forms_have_length_one_and_roots_weigh_a_large_coordinate_less() -> None:
    rows = np.array([[9.0, 1.0], [-4.0, 0.0]])
    np.testing.assert_allclose(np.linalg.norm(unit(rows), axis=1), 1)
    np.testing.assert_allclose(roots(rows), [[3 / np.sqrt(10), 1 / np.sqrt(10)], [-1, 0]])

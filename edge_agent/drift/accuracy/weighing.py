"""Weights on the reference's rows under which they look like a window, and the model of a row's own chance."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ITERATIONS, _ENOUGH, _FLAT = 25, 1e-8, 1e-9


def balancing_weights(functions: Floats, wanted: Floats, ridge: float) -> Floats:
    """The weights closest to equal ones (in relative entropy) whose means of the functions are the wanted ones.

    Args:
        functions: (n, p) of the reference's rows, standardised.
        wanted: (p,) means of a window.
        ridge: > 0, how much of a difference is noise; 1 / rows of the window + 1 / n.

    Returns: (n,) weights, their sum 1: exp of a linear form of the functions, as in an exponential tilt.

    Source: Hainmueller 2012 (entropy balancing), penalised; Newton steps with halving.
    Cost: O(n p^2) a step, about 6 steps.
    """
    tilt = np.zeros(functions.shape[1])
    objective = 0.0
    for _ in range(_ITERATIONS):
        weights = _tilted(functions, tilt)
        mean = weights @ functions
        slope = mean - wanted + ridge * tilt
        away = functions - mean
        curve = (away * weights[:, None]).T @ away + (ridge + _FLAT) * np.eye(len(tilt))
        direction = np.asarray(-np.linalg.solve(curve, slope), np.float64)
        tilt, reached = _halved(functions, wanted, ridge, tilt, direction, objective, float(slope @ direction))
        if objective - reached < _ENOUGH:
            break
        objective = reached
    return _tilted(functions, tilt)


def _halved(
    functions: Floats, wanted: Floats, ridge: float, tilt: Floats, direction: Floats, objective: float, slope: float
) -> tuple[Floats, float]:
    length = 1.0
    while length > 1e-3:
        tried = tilt + length * direction
        reached = _objective(functions, wanted, ridge, tried)
        if reached <= objective + 1e-4 * length * slope:
            return tried, reached
        length /= 2
    return tilt, objective


def _objective(functions: Floats, wanted: Floats, ridge: float, tilt: Floats) -> float:
    forms = functions @ tilt
    top = float(forms.max())
    return float(np.log(np.exp(forms - top).mean())) + top - float(tilt @ wanted) + 0.5 * ridge * float(tilt @ tilt)


def _tilted(functions: Floats, tilt: Floats) -> Floats:
    forms = functions @ tilt
    weights = np.exp(forms - forms.max())
    return np.asarray(weights / weights.sum())


def fit_chance(design: Floats, targets: Floats, ridge: float) -> Floats:
    """(p,) coefficients of a penalised logistic regression; the first column is the constant, not penalised.

    Args:
        targets: (n,) 0 or 1.
    """
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 1e-6
    weights = np.zeros(design.shape[1])
    for _ in range(_ITERATIONS):
        chances = chance(design, weights)
        curve = (design * (chances * (1 - chances) + 1e-6)[:, None]).T @ design + np.diag(penalty)
        change = np.linalg.solve(curve, design.T @ (targets - chances) - penalty * weights)
        weights = weights + change
        if np.abs(change).max() < 1e-6:
            break
    return weights


def chance(design: Floats, weights: Floats) -> Floats:
    """(n,) probabilities."""
    return chance_of(design @ weights)


def chance_of(linear: Floats) -> Floats:
    """Probabilities of any shape, of logits."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(linear, -15.0, 15.0))))


def fit_level(design: Floats, targets: Floats, ridge: float) -> Floats:
    """(p,) coefficients of a penalised linear regression; the first column is the constant, not penalised."""
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 1e-6
    return np.asarray(np.linalg.solve(design.T @ design + np.diag(penalty), design.T @ targets))


def level(design: Floats, weights: Floats) -> Floats:
    """(n,) expected losses, none below 0."""
    return level_of(design @ weights)


def level_of(linear: Floats) -> Floats:
    """Expected losses of any shape, of a linear form."""
    return np.asarray(np.maximum(linear, 0.0))

"""Planes and precision matrices, and what scores are by a fit that has not seen the row that is scored.

Both fit the rows that they were made from too well, above all where there are few rows or neighbours resemble each
other: by the scores of those the gateway's rows would look unusual. So what is calibrated is calibrated with scores of
each part of the rows by the fit of the others.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.unlabelled.answers import log_residue
from edge_agent.drift.unlabelled.missing import completed
from edge_agent.drift.unlabelled.normal_scores import ScoreTable
from edge_agent.drift.unlabelled.scoring import COMPONENTS_CAP, CONDITIONAL_CAP, Scoring

_FOLDS = 10
_WIDE, _FOLDS_WIDE = 256, 3  # of an embedding: its directions are found anew for each fold, at the cube of its width
_RIDGE = 1e-4
_ROWS_A_COMPONENT = 20
_PLANE_SHARE = 0.99  # of the embeddings' variance, at most, lies in their plane
_LONG = 20_000  # rows a channel from which on a precision matrix fits rows it has not seen as well as its own
_LEAST_VARIANCE = 0.5


def plane(
    embeddings: NDArray[Any] | None, rows: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    """Mean, main directions and their deviations of embeddings; and the residues, (n, 1), or (n, 0) without any."""
    none = np.zeros(0, np.float32)
    if embeddings is None or embeddings.size == 0:
        return none, np.zeros((0, 0), np.float32), none, np.zeros((rows, 0))
    flat = embeddings.reshape(rows, -1).astype(np.float64)
    sound: NDArray[np.bool_] = np.asarray(np.isfinite(flat).all(axis=1))
    if not sound.any():
        return none, np.zeros((0, 0), np.float32), none, np.zeros((rows, 0))
    centre = flat[sound].mean(axis=0)
    away = np.where(sound[:, None], flat - centre, 0.0)
    variances, vectors = _directions(away.T @ away / int(sound.sum()))
    # something is left over for the residue, far above rounding
    enough = int(np.searchsorted(np.cumsum(variances), _PLANE_SHARE * variances.sum()))
    size = min(COMPONENTS_CAP, int(sound.sum()) // _ROWS_A_COMPONENT, enough)
    lengths = np.sqrt(variances[:size])
    basis = vectors[:, :size] / lengths
    residue = _residues(away, sound, size)
    return centre.astype(np.float32), basis.astype(np.float32), lengths.astype(np.float32), residue


def _directions(covariance: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d,) variances along the main directions, the largest first, and those directions, (d, d)."""
    variances, vectors = np.linalg.eigh(covariance)
    return variances[::-1], vectors[:, ::-1]


def _residues(away: NDArray[np.float64], sound: NDArray[np.bool_], size: int) -> NDArray[np.float64]:
    """(n, 1) what the plane of ``size`` directions that other rows have leaves of each; rows that are not sound are 0.

    Cost: O(n d^2), and O(d^3) a fold.
    """
    found = np.empty((len(away), 1))
    products, sums = away.T @ away, away.sum(axis=0)
    for fold in np.array_split(np.arange(len(away)), _FOLDS if away.shape[1] <= _WIDE else _FOLDS_WIDE):
        inside = away[fold]
        others = max(1, int(sound.sum() - sound[fold].sum()))
        centre = (sums - inside.sum(axis=0)) / others
        _, vectors = _directions((products - inside.T @ inside) / others - np.outer(centre, centre))
        moved = inside - centre
        found[fold] = log_residue(moved, np.square(moved @ vectors[:, :size]), np.ones(size))
    return found


def conditional(tables: ScoreTable, channels: NDArray[Any]) -> NDArray[np.float32]:
    """(c, c) the precision matrix of (n, c) channels' normal scores, each column over the root of its diagonal."""
    size = channels.shape[1]
    only = ScoreTable(tables.values[:size], tables.scores[:size])
    known = np.isfinite(channels)
    scores = np.where(known, only(np.where(known, channels, 0.0)), np.float32(0))
    return _columns_of(_precision(scores.T.astype(np.float64) @ scores, len(scores)))


def _precision(products: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    """Inverse covariance from sums of products, shrunk towards independence the more the fewer rows there are."""
    size = len(products)
    shrunk = min(0.5, _RIDGE + (size / rows) ** 2)
    covariance = products / rows
    low = np.maximum(0.0, _LEAST_VARIANCE - np.diag(covariance))
    return np.linalg.inv((1.0 - shrunk) * (covariance + np.diag(low)) + shrunk * np.eye(size))


def _columns_of(precision: NDArray[np.float64]) -> NDArray[np.float32]:
    return (precision / np.sqrt(np.diag(precision))).astype(np.float32)


def unseen(scoring: Scoring, scores: NDArray[np.float32], residue: NDArray[np.float64]) -> NDArray[np.float32]:
    """The scores of a reference with the residues by planes of other rows, (n, 1) or (n, 0), and the conditional scores
    of each tenth of the rows by the precision matrix of the others."""
    _, one, two, three, four, five, six = scoring.starts[:7]
    if residue.shape[1]:
        last = ScoreTable(scoring.tables.values[-1:], scoring.tables.scores[-1:])(residue)[:, 0]
        broken = np.isnan(scores[:, five - 1])
        scores[:, five - 1] = np.where(broken, np.nan, last)
        scores[:, six - 1] = np.where(broken, np.nan, last * last)
    rows = len(scores)
    if rows >= _LONG * one:
        return scores
    missing = np.isnan(scores[:, :one])
    locations, lost = completed(scores[:, :one], missing, scoring.precision)
    wide = locations.astype(np.float64)
    products = wide.T @ wide
    found = scores.copy()
    for fold in np.array_split(np.arange(rows), _FOLDS):
        inside = wide[fold]
        kept = _columns_of(_precision(products - inside.T @ inside, rows - len(fold)))
        left = locations[fold] @ kept
        gone = missing[fold]
        found[fold, two:three] = np.where(gone, np.nan, left)
        squares = np.square(np.clip(left, -CONDITIONAL_CAP, CONDITIONAL_CAP)) + lost[fold]
        found[fold, three:four] = np.where(gone, np.nan, squares)
    return found

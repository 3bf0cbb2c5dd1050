"""The estimated accuracy beside the other monitors: of the bundle's own weights, whenever these serve."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_agent.drift.accuracy.calibrate import calibrate_accuracy
from edge_agent.drift.losses import sample_losses
from edge_agent.drift.observed import Observed
from edge_agent.drift.policy.catalogue import ACCURACY, monitor
from edge_agent.drift.reference import Reference
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.drift_status import AccuracyStatus
from edge_agent.runtime.packing import encoded
from edge_agent.runtime.watch_rules import Watched, WatchRules
from edge_agent.runtime.watch_status import drift_status
from tests.runtime.watched import NAMES, SIZE, drawn, labels_of, rules_of, watched_bundle
from tests.runtime.watched_gateway import Gateway
from tests.training.tiny_bundle import CLASSES

ROWS = 1200
OTHERS = "b" * 64


def estimating(bundle: Bundle) -> WatchRules:
    """The bundle's rules, and the estimate."""
    x, outputs = drawn(ROWS, 0)
    labels = labels_of(outputs, 10_000)
    seen = Observed([f"r{k}" for k in range(ROWS)], np.arange(ROWS, dtype=np.float64), x, outputs)
    losses, segments = sample_losses("cross-entropy", outputs, labels), np.zeros(ROWS, np.int64)
    reference = Reference(seen, losses, labels, CLASSES, segments, NAMES, ("",) * len(NAMES))
    params = calibrate_accuracy(reference, batch_size=SIZE, rng=np.random.default_rng(1))
    made = monitor(ACCURACY, params.to_spec(), {ACCURACY: params.to_arrays()})
    rules = rules_of(bundle)
    return replace(rules, served=(*rules.served, Watched(made, "estimate")))


@pytest.fixture
def gateway(tmp_path: Path, bundle: Bundle) -> Iterator[Gateway]:
    whole = watched_bundle(bundle)
    one = Gateway(tmp_path, whole, estimating(whole))
    yield one
    one.parts.close()


def estimate(gateway: Gateway, weights: str) -> AccuracyStatus:
    """After a window that these weights served."""
    gateway.parts.activate(weights)
    gateway.serve(64 * SIZE)
    found = drift_status(gateway.watch).accuracy
    assert found is not None
    return found


def test_it_comes_back_with_the_bundle_s_own_weights(gateway: Gateway) -> None:
    own = gateway.watch.rules.own_weights
    assert estimate(gateway, own).refused == ""
    assert "not the bundle's own" in estimate(gateway, OTHERS).refused
    assert estimate(gateway, own).refused == ""


def test_it_begins_anew_where_its_state_is_of_an_earlier_version(gateway: Gateway) -> None:
    own = gateway.watch.rules.own_weights
    assert estimate(gateway, own).refused == ""
    with gateway.parts.agent_db.transaction():
        older = encoded({"of another version": np.zeros(3)})
        gateway.parts.agent_db.execute("UPDATE watch SET state = ? WHERE name = ?", (older, ACCURACY))
    gateway.restart()
    assert estimate(gateway, own).refused == ""

"""An overlay on the release: laid by compare and swap, named in what it predicts, ended by every activation."""

import numpy as np
import pytest

from edge_agent.errors import RejectedUpdate
from edge_agent.model.bundle import Bundle
from edge_agent.ota.activation import slot_of
from edge_agent.samples.record import SampleBatch
from edge_agent.serving.server import DISOWNED_KEPT, ModelServer, Overlay, Prepared
from tests.training.tiny_bundle import tiny_bundle, tiny_samples, tiny_weights

RELEASE, NEXT, LAID = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny")


@pytest.fixture
def server(bundle: Bundle) -> ModelServer:
    return ModelServer(bundle, tiny_weights(0), RELEASE, 3, "c1")


def _batch(count: int = 8) -> SampleBatch:
    x = tiny_samples(count)[0]["x"]
    return SampleBatch([f"s{k}" for k in range(count)], [float(k) for k in range(count)], {"x": x})


def _overlaid(server: ModelServer, bundle: Bundle, digest: str = LAID) -> Prepared:
    return server.prepare_overlay(server.release, bundle, tiny_weights(7), digest, 5)


def test_what_an_overlay_predicts_names_it_and_the_slot_stays_the_releases(server: ModelServer, bundle: Bundle) -> None:
    before, slot = server.process(_batch()), slot_of(server.active)
    assert server.lay(_overlaid(server, bundle), on=server.release)
    served = server.process(_batch())
    assert (served.weights, served.version, served.cohort, served.bundle) == (LAID, 3, "c1", bundle.digest)
    assert served.overlay == Overlay(LAID, 5, RELEASE)
    assert not np.array_equal(served.outputs, before.outputs)
    assert slot_of(server.active) == slot
    assert (before.weights, before.overlay) == (RELEASE, None)


def test_taken_off_the_release_serves_bit_for_bit(server: ModelServer, bundle: Bundle) -> None:
    before = server.process(_batch()).outputs
    release = server.release
    server.lay(_overlaid(server, bundle), on=release)
    assert server.take_off(on=release)
    after = server.process(_batch())
    assert np.array_equal(after.outputs, before)
    assert (after.weights, after.overlay, server.active.overlay) == (RELEASE, None, None)
    assert not server.take_off(on=release)  # there is nothing to take off


@pytest.mark.parametrize("again", [RELEASE, NEXT])
def test_every_activation_ends_it_and_one_of_before_is_not_laid(
    server: ModelServer, bundle: Bundle, again: str
) -> None:
    """Also that of the weights that serve already: they may come with other personal values."""
    before = server.release
    server.lay(_overlaid(server, bundle), on=before)
    late = _overlaid(server, bundle)
    server.swap(server.prepare(bundle, tiny_weights(1), again, 4, "c1"))
    assert (server.active.overlay, server.active.weights) == (None, again)
    assert not server.lay(late, on=before)
    assert not server.take_off(on=before, worse=True)
    assert server.process(_batch()).weights == again


def test_an_overlay_never_becomes_a_release(server: ModelServer, bundle: Bundle) -> None:
    with pytest.raises(ValueError, match="is no release"):
        server.swap(_overlaid(server, bundle))
    assert server.active is server.release


def test_what_is_no_overlay_is_not_laid(server: ModelServer, bundle: Bundle) -> None:
    plain = server.prepare(bundle, tiny_weights(1), NEXT, 4, "c1")
    assert not server.lay(plain, on=server.release)
    assert server.active.weights == RELEASE


def test_unfit_weights_are_no_overlay_and_the_release_serves(server: ModelServer, bundle: Bundle) -> None:
    spoilt = tiny_weights(7)
    spoilt["w"][0, 0] = np.nan
    with pytest.raises(RejectedUpdate, match="finite"):
        server.prepare_overlay(server.release, bundle, spoilt, LAID, 1)
    assert server.active is server.release


def test_overlays_that_were_worse_are_remembered_until_the_next_release(server: ModelServer, bundle: Bundle) -> None:
    laid = [f"{number:064x}" for number in range(DISOWNED_KEPT + 3)]
    for digest in laid:
        server.lay(_overlaid(server, bundle, digest), on=server.release)
        server.take_off(on=server.release, worse=True)
    assert server.active.disowned == tuple(laid[-DISOWNED_KEPT:])
    server.lay(_overlaid(server, bundle), on=server.release)
    server.take_off(on=server.release)
    assert server.active.disowned == tuple(laid[-DISOWNED_KEPT:])
    server.swap(server.prepare(bundle, tiny_weights(1), NEXT, 4, "c1"))
    assert server.active.disowned == ()

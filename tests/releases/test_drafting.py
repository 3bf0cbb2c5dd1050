from pathlib import Path

import pytest

from edge_agent.errors import RejectedUpdate
from edge_agent.wire.release import MEMBERSHIP_TARGET, Membership, cohort_target, decode_membership
from server_bridge.releases.drafting import Draft, NewWeights, ReleaseRequest, draft
from server_bridge.releases.provision import init_fleet
from server_bridge.releases.record import ReleaseRecord
from tests.training.tiny_bundle import tiny_bundle


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> ReleaseRecord:
    path: Path = tmp_path_factory.mktemp("fleet")
    return init_fleet(path / "fleet", tiny_bundle(path / "bundle").path, "plant")


def member(record: ReleaseRecord, cohort: str) -> Membership:
    return Membership(bundle=record.fleet.default_bundle, cohort=cohort)


def after(record: ReleaseRecord, content: Draft) -> ReleaseRecord:
    return record.model_copy(
        update={"cohorts": content.cohorts, "highest": dict(content.highest), "members": content.members}
    )


def test_new_weights_rise_in_version_and_equal_ones_do_not(first: ReleaseRecord) -> None:
    name = (first.fleet.default_bundle, "root")
    second = after(first, draft(first, ReleaseRequest({}, "test", {name: NewWeights(b"two")})))
    assert second.cohorts[0].current.version == 2
    assert second.cohorts[0].current.base_version == 1
    again = draft(second, ReleaseRequest({}, "test", {name: NewWeights(b"two")}))
    assert again.cohorts == second.cohorts
    assert again.weights == {}


def test_weights_are_stated_with_the_adaptation_that_made_them(first: ReleaseRecord) -> None:
    """Gateways put their personal values of its rounds beside them."""
    name = (first.fleet.default_bundle, "root")
    assert first.cohorts[0].current.adaptation is None
    second = after(first, draft(first, ReleaseRequest({}, "test", {name: NewWeights(b"two", adaptation="a1")})))
    assert second.cohorts[0].current.adaptation == "a1"
    third = after(second, draft(second, ReleaseRequest({}, "test", {name: NewWeights(b"three")})))
    assert third.cohorts[0].current.adaptation is None
    kept = draft(second, ReleaseRequest({}, "test", seen={name: (7, "a" * 64)}))
    assert (kept.cohorts[0].current.version, kept.cohorts[0].current.adaptation) == (8, "a1")


def test_a_cohort_that_comes_back_counts_on(first: ReleaseRecord) -> None:
    bundle = first.fleet.default_bundle
    joined = {"gw": member(first, "c1")}
    second = after(first, draft(first, ReleaseRequest(joined, "test", {(bundle, "c1"): NewWeights(b"a")})))
    empty = after(second, draft(second, ReleaseRequest({}, "test")))
    assert [one.cohort for one in empty.cohorts] == ["root"]
    back = draft(empty, ReleaseRequest(joined, "test", {(bundle, "c1"): NewWeights(b"a")}))
    assert {one.cohort: one.current.version for one in back.cohorts} == {"c1": 2, "root": 1}
    assert decode_membership(back.targets[MEMBERSHIP_TARGET][1]).gateways == joined


def test_nobody_may_belong_to_a_cohort_without_weights(first: ReleaseRecord) -> None:
    with pytest.raises(RejectedUpdate, match="it has no weights"):
        draft(first, ReleaseRequest({"gw": member(first, "c9")}, "test"))


def test_versions_seen_elsewhere_are_passed(first: ReleaseRecord) -> None:
    name = (first.fleet.default_bundle, "root")
    content = draft(first, ReleaseRequest({}, "test", seen={name: (7, "0" * 64)}))
    assert content.cohorts[0].current.version == 8
    assert content.cohorts[0].current.weights == first.cohorts[0].current.weights
    assert content.highest[cohort_target(*name)] == 8

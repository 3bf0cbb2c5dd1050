"""What a merge did to the gateways that went, by the counts that they report."""

import pytest

from edge_agent.wire.messages import CountsBucket, CountsEvent, Event
from server_bridge.rounds.merge_verdict import LOOK_EVERY_S, harm_words, told_of
from server_bridge.store.counts import Accuracies
from tests.rounds.bench import Bench
from tests.rounds.test_merging import ask, side

__all__ = ["side"]


def _count(side: Bench, gateway: str, weights: str, right: int, *, bucket: int, labelled: int = 50) -> None:
    counts = CountsEvent(
        bundle=side.bundle,
        weights=weights,
        weights_version=bucket,
        cohort="c1",
        bucket_s=1.0,
        buckets=[CountsBucket(bucket=bucket, labelled=labelled, right=right, loss_sum=float(labelled - right))],
    )
    event = Event(gateway=gateway, epoch="e", sequence=bucket, low=0, time_s=0.0, body=counts)
    side.store.counts.replace(event, counts)


def _merged(side: Bench, right: dict[str, int]) -> None:
    former, kept = side.releases.weights["c2"], side.releases.weights["c1"]
    ask(side, "c2", "c1")
    side.look()
    for gateway, now in right.items():
        _count(side, gateway, former, 48, bucket=1)
        _count(side, gateway, kept, now, bucket=9)


def _told(side: Bench) -> list[str]:
    return [each.detail for each in side.store.decisions.recent() if each.reason == "merge-harms"]


def test_each_gateway_that_a_merge_made_worse_is_told_of_once(side: Bench) -> None:
    _merged(side, {"g3": 4, "g4": 47, "g1": 2})  # g1 was in c1 before
    side.look()
    assert _told(side) == []  # it looks once a minute
    for _ in range(3):
        side.clock.now_s += LOOK_EVERY_S
        side.look()
    (words,) = _told(side)
    assert words == (
        "g3: holdout accuracy 96% -> 8%, of 50 labelled samples, since cohort c2 went into c1, asked by ann; "
        "its next flag parts it again"
    )
    assert told_of(side.store, "g3", "c2") == words
    assert told_of(side.store, "g3", "c4") is None  # of a later merge nothing is told by that
    assert told_of(side.store, "g4", "c2") is None


def test_what_was_counted_under_the_same_weights_before_the_gateway_left_them_says_nothing_of_the_merge(
    side: Bench,
) -> None:
    former, kept = side.releases.weights["c2"], side.releases.weights["c1"]
    _count(side, "g3", "f" * 64, 48, bucket=1)
    _count(side, "g3", kept, 4, bucket=2)  # it drifted, and left them
    _count(side, "g3", former, 48, bucket=6)
    ask(side, "c2", "c1")
    for _ in range(2):
        side.look()
        side.clock.now_s += LOOK_EVERY_S
    assert _told(side) == []
    _count(side, "g3", kept, 5, bucket=9)
    side.look()
    assert "holdout accuracy 96% -> 10%" in _told(side)[0]


def test_who_has_left_the_cohort_since_and_merges_of_long_ago_are_not_looked_at(side: Bench) -> None:
    _merged(side, {"g3": 4, "g4": 4})
    side.store.lineage.move(
        [move for move in side.store.lineage.moves(gateway="g4") if move.target == "c2"]  # back where it was
    )
    side.clock.now_s += LOOK_EVERY_S
    side.look()
    assert [words[:2] for words in _told(side)] == ["g3"]
    _count(side, "g4", side.releases.weights["c1"], 0, bucket=10)
    side.clock.now_s += 90_000.0
    side.look()
    assert len(_told(side)) == 1


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (Accuracies(None, 0.1, 50), None),
        (Accuracies(0.9, 0.1, 19, 0.1, 2.0, 50), None),  # too few
        (Accuracies(1.0, 0.6, 50, 0.0, 1.0, 1), None),  # too few before
        (Accuracies(0.9, 0.65, 500, 0.1, 1.0, 20), None),  # few before: within chance
        (Accuracies(0.9, 0.85, 5000, 0.1, 0.2, 5000), None),  # little
        (Accuracies(0.6, 0.45, 20, 1.0, 1.0, 20), None),  # within chance
        (Accuracies(0.6, 0.2, 50, 1.0, 1.0, 50), "holdout accuracy 60% -> 20%, of 50 labelled samples"),
        (Accuracies(0.0, 0.0, 50, 1.0, 1.9, 50), None),
        (Accuracies(0.0, 0.0, 50, 1.0, 2.5, 50), "holdout loss 1 -> 2.5, of 50 labelled samples"),
    ],
)
def test_when_a_gateway_is_off_worse(known: Accuracies, words: str | None) -> None:
    assert harm_words(known) == words

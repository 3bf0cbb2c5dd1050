"""What gateways claim of their holdout samples, added up."""

from pathlib import Path

from edge_agent.wire.codec import INTEGER_MAX
from edge_agent.wire.messages import CountsBucket, CountsEvent, Event
from server_bridge.store.counts import Accuracies
from server_bridge.store.database import upsert
from server_bridge.store.store import Store, store_url
from server_bridge.store.tables import COUNTS

OVERFLOWING = 2**63 // INTEGER_MAX + 1


def _told(gateway: str, labelled: int, right: int) -> Event:
    bucket = CountsBucket(bucket=5, labelled=labelled, right=right, loss_sum=0.0)
    body = CountsEvent(
        bundle="b" * 64, weights="a" * 64, weights_version=1, cohort="root", bucket_s=1.0, buckets=[bucket]
    )
    return Event(gateway=gateway, epoch="e", sequence=1, low=0, time_s=0.0, body=body)


def test_one_gateways_claims_do_not_keep_the_others_accuracies_away(tmp_path: Path) -> None:
    store = Store(store_url(tmp_path), tmp_path / "blobs")
    for event in (_told("gw1", 4, 3), _told("gw2", INTEGER_MAX, INTEGER_MAX)):
        assert isinstance(event.body, CountsEvent)
        store.counts.replace(event, event.body)
    (claim,) = store.counts.all("gw2")
    row = {**{name: getattr(claim, name) for name in claim.__slots__}, "epoch": "e", "sequence": 1}
    with store.database.write() as connection:
        for number in range(OVERFLOWING):
            upsert(connection, COUNTS, {**row, "bucket_s": 2.0 + number})
    assert store.counts.accuracies()["gw1", "a" * 64] == Accuracies(None, 0.75, 4, None, 0.0)
    assert store.counts.accuracies()["gw2", "a" * 64].now == 1.0
    store.close()

"""Many reads of the source as one transaction, and every one of them as if it had been alone."""

import queue
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.gathering import gather, put_together
from edge_agent.runtime.pipeline import Recordable
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.serving.server import Served
from tests.runtime.bench import Parts, samples

WEIGHTS = ("a" * 64, "b" * 64)


def item(first: int, count: int, weights: str, labels: list[int], *, bare: bool = False) -> Recordable:
    """Samples of a batch, and labels, perhaps of others."""
    batch = samples(first, count)
    if bare:
        batch = SampleBatch(batch.ids, batch.times, batch.features)
    outputs = np.arange(first, first + count, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    served = Served(outputs, "c" * 64, weights, 1, "root", embeddings=-outputs)
    return Recordable(batch if count else None, served if count else None, [Label(f"s{k}", 0) for k in labels])


@st.composite
def streams(draw: st.DrawFn) -> list[Recordable]:
    """Batches of any size by two models, whose labels come before, with or after them, or twice."""
    first, items = 0, []
    for _ in range(draw(st.integers(1, 8))):
        count = draw(st.integers(0, 5))
        labels = draw(st.lists(st.integers(0, first + count + 3), max_size=6))
        items.append(item(first, count, draw(st.sampled_from(WEIGHTS)), labels, bare=draw(st.booleans())))
        first += count
    return items


@given(streams())
def test_nothing_is_lost_or_moved_between_models(items: list[Recordable]) -> None:
    parts, labels = put_together(items)
    assert [label for one in items for label in one.labels] == labels
    for _, served in parts:
        np.testing.assert_array_equal(served.embeddings, -served.outputs)
    seen = [
        (name, time_s, *row, served.weights, tuple(batch.features["x"][place]))
        for batch, served in parts
        for place, (name, time_s, row) in enumerate(zip(batch.ids, batch.times, served.outputs.tolist(), strict=True))
    ]
    alone = [
        (
            name,
            one.batch.times[place],
            *one.served.outputs[place].tolist(),
            one.served.weights,
            tuple(one.batch.features["x"][place]),
        )
        for one in items
        if one.batch is not None and one.served is not None
        for place, name in enumerate(one.batch.ids)
    ]
    assert seen == alone
    for batch, _ in parts:
        assert {len(column) for column in (batch.groups, batch.holdouts, batch.tasks) if column} <= {len(batch.ids)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gathering")


@settings(max_examples=15, deadline=None)
@given(items=streams())
def test_the_store_holds_the_same_as_after_one_transaction_each(
    items: list[Recordable], folder: Path, bundle: Bundle
) -> None:
    found = []
    for groups in ([items], [[one] for one in items]):
        place = folder / str(len(list(folder.iterdir())))
        place.mkdir()
        parts = Parts(place, bundle)
        for group in groups:
            batches, labels = put_together(group)
            for batch, served in batches:
                parts.store.add(batch, served, 0.0)
            parts.store.label(labels, 0.0)
        rows = parts.store.labelled_since(0, 1000)
        counts = parts.store.counts
        found.append((sorted((row.id, row.weights, row.label, row.time_s) for row in rows), counts))
        parts.close()
    assert found[0] == found[1]


def test_a_batch_of_odd_columns_stands_alone_and_is_refused(tmp_path: Path, bundle: Bundle) -> None:
    good, odd = item(0, 2, WEIGHTS[0], []), item(2, 2, WEIGHTS[0], [])
    assert odd.batch is not None
    odd.batch.times.pop()
    batches, _ = put_together([good, odd, item(4, 2, WEIGHTS[0], [])])
    assert [batch.ids for batch, _ in batches] == [["s0", "s1"], ["s2", "s3"], ["s4", "s5"]]
    parts = Parts(tmp_path, bundle)
    with pytest.raises(DataError, match="2 sample ids"):
        parts.store.add(*batches[1], 0.0)
    parts.close()


def test_no_more_is_gathered_than_told_and_nothing_is_waited_for() -> None:
    waiting: queue.Queue[Recordable] = queue.Queue()
    for first in range(0, 40, 4):
        waiting.put(item(first, 4, WEIGHTS[0], []))
    assert len(gather(waiting, waiting.get(), most_samples=10)) == 3
    assert len(gather(waiting, waiting.get(), most_samples=1)) == 1
    assert len(gather(waiting, waiting.get(), most_samples=10_000)) == 6
    assert waiting.empty()

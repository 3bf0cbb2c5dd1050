import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.tailor import LONGER, PRUNED, RATES, Site, run, save, summarise
from tests.benchmarks.tailor_data.digits import TASKS, splits
from tests.shared_data import DATA


@pytest.mark.data
@pytest.mark.long
def test_a_block_learns_more_than_a_head_and_sends_less_than_the_net(tmp_path: Path) -> None:
    rows = run([1000], 6, 4)
    lines = {(line["task"], line["way"]): line for line in summarise(rows)}
    assert set(lines) == {(task, way) for task in TASKS for way in (*RATES, LONGER, PRUNED)}
    mean = {way: np.mean([lines[(task, way)]["accuracy"] for task in TASKS]) for way in (*RATES, LONGER, PRUNED)}
    assert mean["whole net"] > mean["block, k = 3"] > mean["head alone"] + 0.03
    for task in TASKS:
        sent = [lines[(task, way)]["update_bytes"] for way in ("head alone", "block, k = 3", "whole net")]
        assert sent == sorted(sent)
        assert sent[1] < 0.3 * sent[2]
        assert lines[(task, PRUNED)]["values"] <= lines[(task, "block, k = 3")]["values"]
    kept = json.loads(save(rows, tmp_path).read_text(encoding="utf-8"))
    assert len(kept["rows"]) == len(rows)


@pytest.mark.data
def test_no_image_is_in_two_sets_and_the_backbone_has_seen_none(tmp_path: Path) -> None:
    backbone, tasks = splits(DATA, 1000)
    for name, (train, test) in tasks.items():
        images = [np.rot90(s.images, -1, axes=(2, 3)) if "turned" in name else s.images for s in (train, test)]
        images = [1 - s if "inverted" in name else s for s in images]
        whole = np.concatenate([backbone.images, *images]).reshape(-1, 784).round(4)
        assert len(np.unique(whole, axis=0)) == len(whole)


@pytest.mark.data
def test_every_way_runs(tmp_path: Path) -> None:
    site = Site(tmp_path, 1000, 1, 1)
    rows = site.rows("digits 5-9")
    assert [row.way for row in rows] == ["head alone", "block, k = 1", "block, k = 3", LONGER, PRUNED, "whole net"]
    assert all(row.accuracy > 0.2 for row in rows)

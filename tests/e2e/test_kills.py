"""kill -9 of agents, workers, the bridge and the broker, alone and together: the loop closes, nothing is lost."""

from pathlib import Path

import pytest

from tests.e2e.toy import toy_bundle
from tests.soak.episode import live
from tests.soak.victims import ALONE, TOGETHER


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_bundle(tmp_path_factory.mktemp("made")).path


@pytest.mark.long
@pytest.mark.mosquitto
@pytest.mark.parametrize("seed", range(5))
def test_every_part_killed_alone_and_together(tmp_path: Path, bundle: Path, seed: int) -> None:
    episode = live(tmp_path, bundle, (*ALONE, TOGETHER[seed % len(TOGETHER)]), seed)
    assert episode.problems == ()
    assert [kill.kind for kill in episode.kills if not kill.hit] == []

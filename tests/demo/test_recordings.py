from pathlib import Path

import pytest

from edge_agent.errors import ConfigError, DataError
from server_bridge.demo.recordings import find_file, load_recordings


def test_the_recordings_are_those_the_demo_was_written_for() -> None:
    recordings, motions = load_recordings()
    assert len(recordings) == 140
    assert len(motions) == 7
    assert {recording.subject for recording in recordings} == set(range(1, 11))
    assert all(recording.signal.shape[1] == 6 for recording in recordings)


def test_a_changed_file_is_never_unpickled(tmp_path: Path) -> None:
    content = bytearray(find_file().read_bytes())
    content[-1] ^= 1
    forged = tmp_path / "watch_dataset.npy"
    forged.write_bytes(content)
    with pytest.raises(DataError, match="SHA-256"):
        load_recordings(forged)


def test_a_missing_file_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reinstall"):
        load_recordings(tmp_path / "absent.npy")

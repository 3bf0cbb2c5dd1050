from pathlib import Path

from edge_agent.link.database import open_database
from edge_agent.ota.floors import ROLES, Floors, Versioned


def test_the_time_floor_is_known_while_the_database_refuses(tmp_path: Path) -> None:
    database = open_database(tmp_path / "agent.db")
    floors = Floors(database)
    assert floors.last_known_time_s == 0.0
    floors.raise_map("a" * 64, {role: Versioned(1) for role in ROLES}, 1_700_000_000.0)
    assert floors.last_known_time_s == 1_700_000_000.0
    database.close()
    assert floors.last_known_time_s == 1_700_000_000.0

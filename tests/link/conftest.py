from collections.abc import Iterator

import pytest

from tests.link.session_peer import MakePeer, Peer


@pytest.fixture
def peer() -> Iterator[MakePeer]:
    peers: list[Peer] = []

    def make(port: int, client_id: str, *filters: str, **options: object) -> Peer:
        made = Peer(port, client_id, *filters, **options)  # type: ignore[arg-type]  # passed through
        peers.append(made)
        return made

    yield make
    for one in peers:
        one.session.stop(2)
        assert one.session.failure is None

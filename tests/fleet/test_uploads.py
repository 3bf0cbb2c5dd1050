from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.wire.blobs import make_chunk_list, sha256_hex
from edge_agent.wire.messages import GRANT_MAX_CHUNKS, ChunkGrant, Command
from server_bridge.fleet.transport import Order, Outcome
from server_bridge.fleet.uploads import REGRANT_FIRST_S, Uploads
from tests.fleet.desk import UPDATE_CAP_BYTES, Clock, Desk
from tests.fleet.gateway import CHUNK_BYTES, answer, chunk, manifest, presence, received, train, update_of

DATA = update_of(20 * CHUNK_BYTES + 5)


class Pull:
    """One open train command on a desk, as if an exchange waited for it."""

    def __init__(self, path: Path) -> None:
        self.desk = Desk(path)
        self.desk.ingest.handle([presence()])
        self.action = train()
        self.outcome: Outcome | None = None

    def start(self) -> Command:
        orders = [Order("gw1", "c1", self.action, 100.0)]
        self.desk.fleet.exchange(orders, timeout_s=0.0, cancelled=lambda: True)
        self.desk.fleet._commands.issue("c1", "gw1", self.action, 100.0)
        self.desk.fleet.tick()
        return self.desk.session.commands("gw1")[-1]

    def grants(self) -> list[ChunkGrant]:
        return [grant for ack in self.desk.session.acks("gw1") for grant in ack.grants]

    def status(self) -> tuple[str, str | None, str | None]:
        stored = self.desk.store.commands.get("c1")
        assert stored is not None
        return stored.status, stored.failure, stored.update_digest


@pytest.fixture
def pull(tmp_path: Path) -> Iterator[Pull]:
    made = Pull(tmp_path)
    yield made
    made.desk.store.close()


def test_an_update_is_pulled_a_few_chunks_at_a_time_and_then_forgotten(pull: Pull) -> None:
    command = pull.start()
    pull.desk.ingest.handle([received(answer(command, manifest(pull.action, DATA)))])
    while (grant := pull.grants()[-1]).indices:
        assert len(grant.indices) <= GRANT_MAX_CHUNKS
        pull.desk.ingest.handle([chunk("gw1", DATA, index) for index in grant.indices])
    assert pull.status() == ("ok", None, sha256_hex(DATA))
    assert pull.desk.store.blobs.read(sha256_hex(DATA)) == DATA
    assert grant == ChunkGrant(command_id="c1", digest=sha256_hex(DATA), indices=[])
    assert pull.desk.dropped() == {}


def test_chunks_nobody_granted_are_dropped_and_counted(pull: Pull) -> None:
    pull.desk.ingest.handle([chunk("gw1", DATA, 0)])
    command = pull.start()
    pull.desk.ingest.handle([received(answer(command, manifest(pull.action, DATA)))])
    pull.desk.ingest.handle([chunk("gw1", DATA, 15), chunk("gw2", DATA, 0)])
    assert pull.desk.dropped() == {("gw1", "chunk"): 2, ("gw2", "chunk"): 1}


def test_a_false_chunk_is_dropped_and_the_true_one_still_taken(pull: Pull) -> None:
    small = update_of(100)
    command = pull.start()
    pull.desk.ingest.handle([received(answer(command, manifest(pull.action, small)))])
    pull.desk.ingest.handle([chunk("gw1", update_of(100, seed=1), 0, digest=sha256_hex(small))])
    assert pull.desk.dropped() == {("gw1", "chunk"): 1}
    pull.desk.ingest.handle([chunk("gw1", small, 0)])
    assert pull.status()[0] == "ok"


def test_a_manifest_whose_whole_is_not_its_parts_is_refused(pull: Pull) -> None:
    small = update_of(100)
    command = pull.start()
    wrong = manifest(pull.action, small).model_copy(update={"digest": "f" * 64})
    pull.desk.ingest.handle([received(answer(command, wrong)), chunk("gw1", small, 0, digest="f" * 64)])
    assert pull.status() == ("failed", "wrong-digest", None)
    assert pull.grants()[-1].indices == []


@pytest.mark.parametrize(
    "change",
    [
        {"base": "f" * 64},
        {"coding": "int8"},
        {"chunks": make_chunk_list(b"")},
        {"chunks": make_chunk_list(bytes(UPDATE_CAP_BYTES + 1))},
    ],
)
def test_a_manifest_that_was_not_asked_for_or_is_too_large_is_refused(pull: Pull, change: dict[str, object]) -> None:
    command = pull.start()
    wrong = manifest(pull.action, DATA).model_copy(update=change)
    pull.desk.ingest.handle([received(answer(command, wrong))])
    assert pull.status() == ("failed", "bad-manifest", None)
    assert [grant.indices for grant in pull.grants()] == [[]]
    assert pull.desk.dropped() == {("gw1", "update manifest"): 1}


def test_silence_and_restarts_are_answered_by_granting_again(pull: Pull) -> None:
    command = pull.start()
    pull.desk.ingest.handle([received(answer(command, manifest(pull.action, DATA)))])
    pull.desk.ingest.handle([chunk("gw1", DATA, 0)])
    pull.desk.clock.now_s += REGRANT_FIRST_S
    pull.desk.fleet.tick()
    assert pull.grants()[-1].indices == list(range(1, 9))
    before = len(pull.grants())
    pull.desk.ingest.handle([presence(boot_id="boot2")])
    assert len(pull.grants()) == before + 1


def test_a_repeated_final_reply_does_not_start_the_pull_anew(pull: Pull) -> None:
    command = pull.start()
    reply = received(answer(command, manifest(pull.action, DATA)))
    pull.desk.ingest.handle([reply, chunk("gw1", DATA, 0), reply])
    assert len(pull.grants()) == 1


def test_a_late_result_is_not_used_and_forgotten_with_the_next_order(pull: Pull) -> None:
    command = pull.start()
    pull.desk.fleet._commands.fail("c1", "timeout")
    pull.desk.ingest.handle([received(answer(command, manifest(pull.action, DATA)))])
    assert pull.status() == ("failed", "timeout", None)
    assert pull.grants() == []
    pull.desk.fleet.exchange([Order("gw1", "c2", train(), 1.0)], timeout_s=0.0, cancelled=lambda: True)
    assert [(grant.command_id, grant.indices) for grant in pull.grants()] == [("c1", [])]


def test_the_budget_is_shared_and_a_silent_gateway_gives_way() -> None:
    clock = Clock()
    grants: list[tuple[str, ChunkGrant]] = []
    uploads = Uploads(lambda gateway, grant: grants.append((gateway, grant)), clock, budget_bytes=len(DATA) + 10)
    action = train()
    command = Command(
        fleet="line1", gateway="gw1", boot_id="b", command_id="c1", sequence=1, duration_s=1.0, action=action
    )
    reply = answer(command, manifest(action, DATA))
    uploads.begin("gw1", "c1", manifest(action, DATA), reply)
    uploads.begin("gw2", "c2", manifest(action, DATA), reply)
    assert [gateway for gateway, _ in grants] == ["gw1"]
    for _ in range(600):
        clock.now_s += 0.5
        uploads.tick()
    assert uploads.in_flight_bytes == len(DATA)
    assert {gateway for gateway, _ in grants} == {"gw1", "gw2"}
    uploads.abandon("c1")
    uploads.abandon("c2")
    assert uploads.in_flight_bytes == 0


def test_where_chunks_usually_take_long_silence_is_borne_longer() -> None:
    clock = Clock()
    grants: list[ChunkGrant] = []
    uploads = Uploads(lambda _, grant: grants.append(grant), clock)
    action = train()
    command = Command(
        fleet="line1", gateway="gw1", boot_id="b", command_id="c1", sequence=1, duration_s=1.0, action=action
    )
    uploads.begin("gw1", "c1", manifest(action, DATA), answer(command, manifest(action, DATA)))
    for index in range(GRANT_MAX_CHUNKS):
        clock.now_s += 20.0
        uploads.chunk("gw1", sha256_hex(DATA), index, chunk("gw1", DATA, index).payload)
    assert len(grants) == 2
    clock.now_s += REGRANT_FIRST_S + 1.0
    uploads.tick()
    assert len(grants) == 2
    clock.now_s += 2 * 20.0
    uploads.tick()
    assert len(grants) == 3


def test_what_a_stop_cut_off_is_had_after_the_restart(tmp_path: Path) -> None:
    before = Pull(tmp_path)
    command = before.start()
    before.desk.ingest.handle([received(answer(command, manifest(before.action, DATA))), chunk("gw1", DATA, 0)])
    order = Order("gw1", "c1", before.action, 100.0)
    (cut,) = before.desk.fleet.exchange([order], timeout_s=10.0, cancelled=lambda: True)
    assert cut.failure == "cancelled"
    assert all(grant.indices for grant in before.grants())
    before.desk.store.close()
    after = Pull(tmp_path)
    command = after.start()
    after.desk.ingest.handle([received(answer(command, manifest(after.action, DATA)))])
    while (grant := after.grants()[-1]).indices:
        after.desk.ingest.handle([chunk("gw1", DATA, index) for index in grant.indices])
    assert after.status()[0] == "ok"
    after.desk.store.close()


def test_a_result_whose_update_is_gone_is_asked_for_again(pull: Pull) -> None:
    small = update_of(100)
    command = pull.start()
    pull.desk.ingest.handle([received(answer(command, manifest(pull.action, small))), chunk("gw1", small, 0)])
    order = Order("gw1", "c1", pull.action, 100.0)
    (had,) = pull.desk.fleet.exchange([order], timeout_s=0.0, cancelled=lambda: False)
    assert had.update == small
    pull.desk.store.blobs.remove(sha256_hex(small))
    before = len(pull.desk.session.commands("gw1"))
    (gone,) = pull.desk.fleet.exchange([order], timeout_s=0.0, cancelled=lambda: False)
    assert gone.failure == "timeout"
    pull.desk.fleet._commands.ask_again("c1", "gw1", pull.action, 100.0)
    pull.desk.fleet.tick()
    assert len(pull.desk.session.commands("gw1")) == before + 1

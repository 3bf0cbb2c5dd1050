"""Commands and their results, so that a repeated or late reply is known for what it is."""

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row, delete, insert, select, update

from edge_agent.wire.messages import Reply
from edge_agent.wire.messages.command import CommandAction
from server_bridge.store.database import Database, upsert
from server_bridge.store.tables import COMMANDS, SEQUENCES

OPEN = "open"
OK = "ok"
FAILED = "failed"
COMMANDS_KEPT = 20_000

_ACTION: TypeAdapter[CommandAction] = TypeAdapter(CommandAction)


@dataclass(frozen=True, slots=True)
class StoredCommand:
    """A command: ``open``, ``ok`` with a final reply, or ``failed`` with a reason."""

    command_id: str
    gateway: str
    action: CommandAction
    duration_s: float
    issued_s: float
    ended_s: float | None
    status: str
    boot_id: str | None
    sequence: int
    failure: str | None
    reply: Reply | None
    late_reply: Reply | None
    update_digest: str | None


class CommandTable:
    """Commands by id, and the highest sequence signed for each gateway's boot id.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, command_id: str, gateway: str, action: CommandAction, duration_s: float, now_s: float) -> None:
        """Record an open command before it is ever sent."""
        row = {
            "command_id": command_id,
            "gateway": gateway,
            "action": _ACTION.dump_json(action, by_alias=True).decode(),
            "duration_s": duration_s,
            "issued_s": now_s,
            "status": OPEN,
            "sequence": 0,
        }
        with self._database.write() as connection:
            connection.execute(insert(COMMANDS).values(**row))

    def reopen(self, command_id: str, duration_s: float) -> None:
        """Ask again what a former run, or a former round, left without a usable result."""
        values = {
            "status": OPEN,
            "duration_s": duration_s,
            "failure": None,
            "reply": None,
            "ended_s": None,
            "update_digest": None,
        }
        with self._database.write() as connection:
            connection.execute(update(COMMANDS).where(COMMANDS.c.command_id == command_id).values(**values))

    def get(self, command_id: str) -> StoredCommand | None:
        """A command by its id."""
        with self._database.read() as connection:
            row = connection.execute(select(COMMANDS).where(COMMANDS.c.command_id == command_id)).first()
        with self._database.decoding("commands"):
            return None if row is None else _command(row)

    def all(self, *, status: str | None = None, limit: int = 1000) -> list[StoredCommand]:
        """The newest commands, in the order of their issue."""
        query = select(COMMANDS).order_by(COMMANDS.c.issued_s.desc(), COMMANDS.c.command_id.desc()).limit(limit)
        if status is not None:
            query = query.where(COMMANDS.c.status == status)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        with self._database.decoding("commands"):
            return [_command(row) for row in reversed(rows)]

    def update_digests(self, prefix: str) -> list[str]:
        """Digests of the updates that commands with such ids brought."""
        chosen = COMMANDS.c.command_id.startswith(prefix, autoescape=True)
        query = select(COMMANDS.c.update_digest).where(chosen, COMMANDS.c.update_digest.is_not(None)).distinct()
        with self._database.read() as connection:
            return list(connection.execute(query).scalars().all())

    def next_sequence(self, command_id: str, gateway: str, boot_id: str, above: int = 0) -> int:
        """The next sequence for a gateway's boot id, recorded with the command that uses it."""
        with self._database.write() as connection:
            known = connection.execute(select(SEQUENCES).where(SEQUENCES.c.gateway == gateway)).first()
            last = known.sequence if known is not None and known.boot_id == boot_id else 0
            sequence = max(last, above) + 1
            upsert(connection, SEQUENCES, {"gateway": gateway, "boot_id": boot_id, "sequence": sequence})
            mine = COMMANDS.c.command_id == command_id
            connection.execute(update(COMMANDS).where(mine).values(boot_id=boot_id, sequence=sequence))
        return sequence

    def finish(self, command_id: str, reply: Reply, now_s: float, *, update_digest: str | None = None) -> bool:
        """End an open command with its final reply; whether it was open."""
        failed = reply.status != "ok"
        values = {
            "status": FAILED if failed else OK,
            "failure": (reply.reason or "refused") if failed else None,
            "reply": reply.model_dump_json(by_alias=True),
            "ended_s": now_s,
            "update_digest": update_digest,
        }
        return self._end(command_id, values)

    def fail(self, command_id: str, failure: str, now_s: float, *, reply: Reply | None = None) -> bool:
        """End an open command without a usable result; whether it was open."""
        body = None if reply is None else reply.model_dump_json(by_alias=True)
        return self._end(command_id, {"status": FAILED, "failure": failure, "reply": body, "ended_s": now_s})

    def fail_open(self, failure: str, now_s: float) -> int:
        """End every open command without a result; returns how many were open."""
        values = {"status": FAILED, "failure": failure, "ended_s": now_s}
        with self._database.write() as connection:
            return connection.execute(update(COMMANDS).where(COMMANDS.c.status == OPEN).values(**values)).rowcount

    def record_late(self, reply: Reply) -> None:
        """Keep a reply that came after its command had ended; the first one stays."""
        with self._database.write() as connection:
            mine = (COMMANDS.c.command_id == reply.command_id, COMMANDS.c.late_reply.is_(None))
            connection.execute(update(COMMANDS).where(*mine).values(late_reply=reply.model_dump_json(by_alias=True)))

    def trim(self, keep: int = COMMANDS_KEPT) -> int:
        """Forget the oldest ended commands beyond ``keep``; returns how many."""
        newest = select(COMMANDS.c.issued_s).order_by(COMMANDS.c.issued_s.desc()).offset(keep).limit(1)
        with self._database.write() as connection:
            border = connection.execute(newest).scalar()
            if border is None:
                return 0
            old = delete(COMMANDS).where(COMMANDS.c.issued_s <= border, COMMANDS.c.status != OPEN)
            return connection.execute(old).rowcount

    def _end(self, command_id: str, values: dict[str, Any]) -> bool:
        with self._database.write() as connection:
            mine = (COMMANDS.c.command_id == command_id, COMMANDS.c.status == OPEN)
            return connection.execute(update(COMMANDS).where(*mine).values(**values)).rowcount > 0


def _command(row: Row[Any]) -> StoredCommand:
    return StoredCommand(
        command_id=row.command_id,
        gateway=row.gateway,
        action=_ACTION.validate_json(row.action),
        duration_s=row.duration_s,
        issued_s=row.issued_s,
        ended_s=row.ended_s,
        status=row.status,
        boot_id=row.boot_id,
        sequence=row.sequence,
        failure=row.failure,
        reply=None if row.reply is None else Reply.model_validate_json(row.reply),
        late_reply=None if row.late_reply is None else Reply.model_validate_json(row.late_reply),
        update_digest=row.update_digest,
    )

"""The commands that were taken, and how each was answered; a restart finds both."""

import time

import structlog

from edge_agent.link.database import Database
from edge_agent.wire.codec import decode, encode
from edge_agent.wire.errors import WireError
from edge_agent.wire.messages import Command, Reply
from edge_agent.wire.messages.reply import REPLY_CAP_BYTES

KEPT_COMMANDS = 200
_log = structlog.get_logger(__name__)

TABLES = (
    """CREATE TABLE command (
        id TEXT PRIMARY KEY,
        received_s REAL NOT NULL,
        body TEXT NOT NULL,
        reply TEXT
    )""",
)


class OrderMemory:
    """The latest ``KEPT_COMMANDS`` commands by their ids, with the final reply to each.

    Raises:
        StorageError: from every method: the database cannot be read or written.
    """

    def __init__(self, database: Database) -> None:
        database.define("orders", TABLES)
        self._database = database

    def take(self, command: Command) -> None:
        """It was received, and has no final reply yet; a repeated one changes nothing."""
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO command VALUES (?, ?, ?, NULL) ON CONFLICT (id) DO NOTHING",
                (command.command_id, time.time(), encode(command).decode()),
            )

    def finish(self, command: Command, reply: Reply) -> None:
        """Its final reply; the oldest commands beyond those that are kept are forgotten."""
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO command VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET reply = excluded.reply",
                (command.command_id, time.time(), encode(command).decode(), encode(reply).decode()),
            )
            self._database.execute(
                "DELETE FROM command WHERE rowid NOT IN (SELECT rowid FROM command ORDER BY rowid DESC LIMIT ?)",
                (KEPT_COMMANDS,),
            )

    def reply(self, command_id: str) -> Reply | None:
        """The final reply; None: there is none, or it cannot be read, which is logged."""
        rows = self._database.query("SELECT reply FROM command WHERE id = ?", (command_id,))
        if not rows or rows[0][0] is None:
            return None
        try:
            return decode(Reply, rows[0][0].encode(), cap_bytes=REPLY_CAP_BYTES)
        except WireError as error:
            _log.error("stored_reply_unreadable", command=command_id, problem=error.problem)
            return None

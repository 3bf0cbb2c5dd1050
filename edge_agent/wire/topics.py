"""MQTT topics of one fleet: ``clma/1/<fleet>/...``."""

import re
from dataclasses import dataclass
from enum import StrEnum

from edge_agent.wire.errors import WireError

ROOT = "clma/1"
MAX_TOPIC_CHARS = 300
MAX_CHUNK_INDEX = 65_535

_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_INDEX = re.compile(r"(0|[1-9][0-9]{0,4})\Z")


class TopicKind(StrEnum):
    """A row of the topic table."""

    PRESENCE = "presence"
    STATE = "state"
    EVENT = "event"
    REPLY = "reply"
    UPLOAD_CHUNK = "upload-chunk"
    COMMAND = "command"
    ACK = "ack"
    CHUNK = "chunk"
    RELEASE = "release"
    BRIDGE = "bridge"


_UP = {"presence": TopicKind.PRESENCE, "state": TopicKind.STATE, "event": TopicKind.EVENT, "reply": TopicKind.REPLY}
_DOWN = {"command": TopicKind.COMMAND, "ack": TopicKind.ACK}
_ALL = {"release": TopicKind.RELEASE, "bridge": TopicKind.BRIDGE}


@dataclass(frozen=True, slots=True)
class ParsedTopic:
    """What a topic says.

    ``gateway`` is set for ``up/`` and ``down/`` topics, ``digest`` and ``index`` for chunks.
    """

    fleet: str
    kind: TopicKind
    gateway: str | None = None
    digest: str | None = None
    index: int | None = None


def is_identifier(text: str) -> bool:
    """Whether ``text`` may name a fleet or a gateway: ``[A-Za-z0-9_-]{1,64}``."""
    return _IDENTIFIER.match(text) is not None


def is_digest(text: str) -> bool:
    """Whether ``text`` is a SHA-256 in lower-case hexadecimal."""
    return _DIGEST.match(text) is not None


@dataclass(frozen=True, slots=True)
class FleetTopics:
    """Topic names and filters of one fleet.

    Raises:
        WireError: the fleet's name is not an identifier; so do the methods for a gateway's, a
            digest or an index that no topic may hold.
    """

    fleet: str

    def __post_init__(self) -> None:
        _checked(self.fleet)

    @property
    def root(self) -> str:
        """``clma/1/<fleet>``."""
        return f"{ROOT}/{self.fleet}"

    @property
    def release(self) -> str:
        """The retained TUF metadata map."""
        return f"{self.root}/all/release"

    @property
    def bridge(self) -> str:
        """The bridge's retained presence."""
        return f"{self.root}/all/bridge"

    @property
    def up_filter(self) -> str:
        """Everything gateways send."""
        return f"{self.root}/up/#"

    @property
    def any_fleet_up_filter(self) -> str:
        """Everything gateways send, also into other fleets' trees."""
        return f"{ROOT}/+/up/#"

    def presence(self, gateway: str) -> str:
        """Retained; the gateway and its will."""
        return self._up(gateway, "presence")

    def state(self, gateway: str) -> str:
        """Retained; the gateway's running versions and counts."""
        return self._up(gateway, "state")

    def event(self, gateway: str) -> str:
        """Outbox messages."""
        return self._up(gateway, "event")

    def reply(self, gateway: str) -> str:
        """Replies to commands."""
        return self._up(gateway, "reply")

    def upload_chunk(self, gateway: str, digest: str, index: int) -> str:
        """One granted chunk of an update."""
        return self._up(gateway, _chunk_place(digest, index))

    def command(self, gateway: str) -> str:
        """Signed commands for one gateway."""
        return self._down(gateway, "command")

    def ack(self, gateway: str) -> str:
        """Outbox sequences committed, and chunk grants."""
        return self._down(gateway, "ack")

    def down_filter(self, gateway: str) -> str:
        """Everything the bridge sends to one gateway."""
        return self._down(gateway, "#")

    def chunk(self, digest: str, index: int) -> str:
        """One retained chunk of a published blob."""
        return f"{self.root}/all/{_chunk_place(digest, index)}"

    def _up(self, gateway: str, rest: str) -> str:
        return f"{self.root}/up/{_checked(gateway)}/{rest}"

    def _down(self, gateway: str, rest: str) -> str:
        return f"{self.root}/down/{_checked(gateway)}/{rest}"


def parse_topic(topic: str) -> ParsedTopic:
    """Read a topic name.

    Raises:
        WireError: it is no topic of the contract.
    """
    if len(topic) > MAX_TOPIC_CHARS or not topic.startswith(ROOT + "/"):
        raise WireError("topic", "outside the contract's tree")
    parts = topic[len(ROOT) + 1 :].split("/")
    if len(parts) < 3 or not is_identifier(parts[0]):
        raise WireError("topic", "no fleet or no row")
    fleet, side, rest = parts[0], parts[1], parts[2:]
    if side == "all":
        return _parse_all(fleet, rest)
    if side not in ("up", "down") or len(rest) < 2 or not is_identifier(rest[0]):
        raise WireError("topic", "neither up/<gateway>, down/<gateway> nor all")
    gateway, row = rest[0], rest[1:]
    if side == "down":
        if len(row) == 1 and row[0] in _DOWN:
            return ParsedTopic(fleet, _DOWN[row[0]], gateway)
    elif len(row) == 1 and row[0] in _UP:
        return ParsedTopic(fleet, _UP[row[0]], gateway)
    elif len(row) == 3 and row[0] == "blob":
        digest, index = _chunk(row[1], row[2])
        return ParsedTopic(fleet, TopicKind.UPLOAD_CHUNK, gateway, digest, index)
    raise WireError("topic", "unknown row")


def _checked(identifier: str) -> str:
    if not is_identifier(identifier):
        raise WireError("identifier", f"{identifier!r} is not of the form [A-Za-z0-9_-]{{1,64}}")
    return identifier


def _chunk_place(digest: str, index: int) -> str:
    if not is_digest(digest) or not 0 <= index <= MAX_CHUNK_INDEX:
        raise WireError("chunk", f"digest {digest!r} or index {index} malformed")
    return f"blob/{digest}/{index}"


def _parse_all(fleet: str, rest: list[str]) -> ParsedTopic:
    if len(rest) == 1 and rest[0] in _ALL:
        return ParsedTopic(fleet, _ALL[rest[0]])
    if len(rest) == 3 and rest[0] == "blob":
        digest, index = _chunk(rest[1], rest[2])
        return ParsedTopic(fleet, TopicKind.CHUNK, None, digest, index)
    raise WireError("topic", "unknown row under all/")


def _chunk(digest: str, index: str) -> tuple[str, int]:
    if not is_digest(digest) or _INDEX.match(index) is None or int(index) > MAX_CHUNK_INDEX:
        raise WireError("topic", "chunk digest or index malformed")
    return digest, int(index)

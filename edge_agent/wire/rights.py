"""Who may read and write which topic: a row for each connection's identity. Pure.

Every connection has an identity of its own, which is its client id, its username and its
certificate's common name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edge_agent.wire.topics import FleetTopics, is_identifier

BRIDGE_PREFIX = "bridge-"

GATEWAY_CONNECTIONS = ("", ".down", ".base", ".up", ".check")
"""The agent's session, its two downloads, its upload; and `edge-agent check`, which has no right at all."""

BRIDGE_CONNECTIONS = ("", ".release", ".release.readback")


@dataclass(frozen=True, slots=True)
class Right:
    """What one identity may do. ``identity`` and ``topic`` hold ``{gateway}`` and ``{fleet}`` until filled in."""

    identity: str
    access: Literal["read", "write"]
    topic: str


_GATEWAY: tuple[Right, ...] = (
    *(Right("{gateway}", "write", f"up/{{gateway}}/{row}") for row in ("presence", "state", "event", "reply")),
    Right("{gateway}", "read", "down/{gateway}/#"),
    Right("{gateway}", "read", "all/release"),
    Right("{gateway}", "read", "all/bridge"),
    Right("{gateway}.down", "read", "all/blob/+/+"),
    Right("{gateway}.base", "read", "all/blob/+/+"),
    Right("{gateway}.up", "write", "up/{gateway}/blob/+/+"),
)
_BRIDGE: tuple[Right, ...] = (
    Right("bridge-{fleet}", "read", "up/#"),
    Right("bridge-{fleet}", "write", "up/#"),
    Right("bridge-{fleet}", "write", "down/#"),
    Right("bridge-{fleet}", "write", "all/bridge"),
    Right("bridge-{fleet}.release", "read", "all/release"),
    Right("bridge-{fleet}.release", "write", "all/release"),
    Right("bridge-{fleet}.release", "write", "all/blob/+/+"),
    Right("bridge-{fleet}.release.readback", "read", "all/blob/+/+"),
)
RIGHTS: tuple[Right, ...] = (*_GATEWAY, *_BRIDGE)
"""Every right there is, topics below ``clma/1/<fleet>/``; what is not here is denied."""


def gateway_identities(gateway: str) -> list[str]:
    """The identities of a gateway's connections, its main one first."""
    return [gateway + suffix for suffix in GATEWAY_CONNECTIONS]


def bridge_identities(fleet: str) -> list[str]:
    """The identities of the bridge's connections, its main one first."""
    return [BRIDGE_PREFIX + fleet + suffix for suffix in BRIDGE_CONNECTIONS]


def may_be_gateway(gateway: str) -> bool:
    """Whether the broker could never take this gateway for a bridge."""
    return is_identifier(gateway) and not gateway.startswith(BRIDGE_PREFIX)


def gateway_rights(fleet: str, gateway: str) -> list[Right]:
    """What the connections of one gateway may do."""
    return _filled(_GATEWAY, FleetTopics(fleet), gateway)


def bridge_rights(fleet: str) -> list[Right]:
    """What the connections of the fleet's bridge may do."""
    return _filled(_BRIDGE, FleetTopics(fleet), "")


def _filled(rights: Sequence[Right], topics: FleetTopics, gateway: str) -> list[Right]:
    names = {"gateway": gateway, "fleet": topics.fleet}
    return [
        Right(right.identity.format(**names), right.access, f"{topics.root}/{right.topic.format(**names)}")
        for right in rights
    ]

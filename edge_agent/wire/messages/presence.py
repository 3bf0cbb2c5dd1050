"""``up/<gw>/presence``: retained; written by the gateway and by its will."""

from edge_agent.wire.codec import Count, Identifier, Message, Name

PRESENCE_CAP_BYTES = 4 * 1024


class Presence(Message):
    """Whether a gateway is there.

    An offline message counts only for the connection it names: a will of an earlier
    connection may arrive after the next connection's online.
    """

    gateway: Identifier
    online: bool
    boot_id: Name
    connection: Count

"""``all/bridge``: retained; the bridge's presence and its will."""

from edge_agent.wire.codec import Message, Name

BRIDGE_CAP_BYTES = 4 * 1024


class BridgePresence(Message):
    """Whether the bridge is there; a new boot id makes gateways re-send their outboxes."""

    boot_id: Name
    online: bool

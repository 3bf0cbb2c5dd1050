"""The contract between gateway and bridge: pure, no IO, no clock.

Everything here turns bytes into checked values and back; whatever is wrong with the
bytes raises :class:`WireError` and nothing else.
"""

from edge_agent.wire.errors import WireError

__all__ = ["WireError"]

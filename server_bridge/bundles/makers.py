"""The monitors that a bundle gets, and how each is calibrated."""

from server_bridge.bundles.support import Maker

MAKERS: tuple[Maker, ...] = ()

"""Errors of the bridge: the tree of ``edge_agent.errors`` serves both sides.

EdgeError
├── ConfigError      the operator: change a setting, a file or the machine
├── TransientError   nobody: try again later, with full jitter
│   └── BrokerAway   nobody: what needs the broker waits for it, and counts as no attempt
├── RejectedUpdate   nobody: the signer or a gateway refuses a release
├── StorageError     the operator: disk or database
│   ├── StoreDamaged nobody: the next start of the bridge sets the file aside and restores its newest copy
│   └── StoreRemoved nobody: the next start of the bridge restores its newest copy
├── DataError        whoever supplies the bundle, or a strategy that cannot aggregate
└── BridgeFailure    the service manager: a part died; restart the bridge
"""

from edge_agent.errors import EdgeError, StorageError, TransientError


class BrokerAway(TransientError):
    """The broker cannot be reached, or does not answer."""


class StoreDamaged(StorageError):
    """The store is no database, or a damaged one; reading it again will not help."""


class StoreRemoved(StorageError):
    """The store's file was deleted or replaced while in use; what was written since is lost with it."""


class BridgeFailure(EdgeError):
    """A thread of the bridge ended by itself; the process ends non-zero so that it is started again."""

"""mosquitto's access control list, from the table of rights. Pure text."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from edge_agent.wire.rights import BRIDGE_PREFIX, Right, bridge_rights, gateway_rights

_HEAD = """\
# Made by `server-bridge pki`; do not edit. What is not listed is denied.
# A user is a certificate's common name, which is also the client id.
"""


def access_list(fleet: str, identities: Iterable[str]) -> str:
    """An ``acl_file`` for these identities.

    Args:
        fleet: the one fleet whose tree they may use.
        identities: of every connection that has a valid certificate.
    """
    known = set(identities)
    gateways = sorted({name.split(".")[0] for name in known if not name.startswith(BRIDGE_PREFIX)})
    rights = [*bridge_rights(fleet), *(right for name in gateways for right in gateway_rights(fleet, name))]
    return _HEAD + "".join(_block(name, lines) for name, lines in _by_identity(rights) if name in known)


def _by_identity(rights: Sequence[Right]) -> Iterable[tuple[str, list[Right]]]:
    return ((name, list(group)) for name, group in groupby(rights, key=lambda right: right.identity))


def _block(name: str, rights: Sequence[Right]) -> str:
    return f"\nuser {name}\n" + "".join(f"topic {right.access} {right.topic}\n" for right in rights)

"""The root of trust that a gateway is handed: whether it can be one."""

from edge_agent.errors import RejectedUpdate


def check_root(root: bytes) -> int:
    """Whether these bytes are root metadata signed by its own keys; its version. Its expiry is not looked at.

    Raises:
        RejectedUpdate: ``malformed`` or ``bad_signature``: no map could ever be verified with it.
    """
    from tuf.api.exceptions import RepositoryError  # late: tuf takes about 10 MB
    from tuf.api.metadata import Metadata, Root

    try:
        metadata = Metadata[Root].from_bytes(root)
        if not isinstance(metadata.signed, Root):
            raise RejectedUpdate("malformed", f"it is {metadata.signed.type} metadata")
        metadata.verify_delegate(Root.type, metadata)
    except RepositoryError as error:
        reason = "bad_signature" if type(error).__name__ == "UnsignedMetadataError" else "malformed"
        raise RejectedUpdate(reason, f"{type(error).__name__}: {str(error)[:200]}") from None
    return metadata.signed.version

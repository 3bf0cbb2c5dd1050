"""Ed25519 signatures of commands; without the `cryptography` package on the gateway."""

from collections.abc import Mapping

from edge_agent.wire.release import CommandKey


def verify_signature(keys: Mapping[str, CommandKey], key_id: str, signature: bytes, body: bytes) -> bool:
    """Whether the key of that id made the signature over ``body``; an unknown key id: no."""
    from securesystemslib.exceptions import UnverifiedSignatureError  # late: as tuf is
    from securesystemslib.signer import Signature, SSlibKey

    key = keys.get(key_id)
    if key is None:
        return False
    try:
        SSlibKey(key_id, "ed25519", "ed25519", {"public": key.public}).verify_signature(
            Signature(key_id, signature.hex()), body
        )
    except UnverifiedSignatureError:
        return False
    return True

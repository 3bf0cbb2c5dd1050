"""The gateway has no ``cryptography``: its signatures are checked by securesystemslib's own code."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from edge_agent.ota.command_keys import verify_signature
from edge_agent.wire.release import CommandKey
from tests.runtime.desk import Signer

_CHECK = (
    "import sys\n"
    "sys.modules['cryptography'] = None\n"
    "from edge_agent.ota.command_keys import verify_signature\n"
    "from edge_agent.wire.release import CommandKey\n"
    "key, signature, body = sys.argv[1:]\n"
    "keys = {'k': CommandKey(public=key)}\n"
    "print(verify_signature(keys, 'k', bytes.fromhex(signature), body.encode()))\n"
)


@pytest.mark.parametrize(
    ("change", "body", "right"),
    [
        (lambda s: s, "order", True),
        (lambda s: s, "other", False),
        (lambda s: bytes([s[0] ^ 1]) + s[1:], "order", False),
        (lambda s: s[:-1] + bytes([s[-1] ^ 1]), "order", False),
        (lambda s: s[:63], "order", False),
        (lambda s: b"", "order", False),
        (lambda s: b"\xff" * 64, "order", False),
    ],
)
def test_both_checkers_say_the_same(change: Callable[[bytes], bytes], body: str, right: bool) -> None:
    signer = Signer(key_id="k")
    signature = change(signer.key.sign(b"order"))
    (key,) = signer.public.values()
    without = subprocess.run(
        [sys.executable, "-c", _CHECK, key.public, signature.hex(), body],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert without.stdout.strip() == str(right)
    assert verify_signature(signer.public, "k", signature, body.encode()) is right


def test_an_unknown_key_makes_nothing_right() -> None:
    signer = Signer()
    signature = signer.key.sign(b"order")
    assert not verify_signature(signer.public, "another", signature, b"order")
    assert not verify_signature({}, signer.key_id, signature, b"order")
    keys = {signer.key_id: CommandKey(public="00" * 32)}
    assert not verify_signature(keys, signer.key_id, signature, b"order")

import base64
import hashlib
import hmac
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_agent.wire.codec import encode
from edge_agent.wire.errors import WireError
from edge_agent.wire.messages import COMMAND_CAP_BYTES, Command, Train, open_command, sign_command
from edge_agent.wire.messages.command import SignedCommand
from tests.wire.strategies import models

SECRET = b"stands for Ed25519, whose keys are the matter of ota and releases"
slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sign(body: bytes) -> tuple[str, bytes]:
    return "key-1", hmac.digest(SECRET, body, hashlib.sha256)


def verify(key_id: str, signature: bytes, body: bytes) -> bool:
    return key_id == "key-1" and hmac.compare_digest(signature, hmac.digest(SECRET, body, hashlib.sha256))


@slow
@given(command=models(Command))
def test_a_signed_command_is_opened_as_it_was_made(command: Command) -> None:
    assert open_command(encode(sign_command(command, sign)), verify) == command


@slow
@given(command=models(Command), data=st.data())
def test_a_changed_body_is_never_opened_as_another_command(command: Command, data: st.DataObject) -> None:
    payload = bytearray(encode(sign_command(command, sign)))
    position = data.draw(st.integers(0, len(payload) - 1))
    payload[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert open_command(bytes(payload), verify) == command
    except WireError:
        return


@given(payload=st.binary(max_size=200))
def test_any_bytes_are_a_wire_error(payload: bytes) -> None:
    with pytest.raises(WireError):
        open_command(payload, verify)


@given(signature=st.text(max_size=20), body=st.text(max_size=50))
def test_an_envelope_with_any_content_is_a_wire_error(signature: str, body: str) -> None:
    envelope = {"schema": 1, "key_id": "key-1", "signature": signature, "body": body}
    with pytest.raises(WireError):
        open_command(json.dumps(envelope).encode(), verify)
    with pytest.raises(WireError):
        open_command(json.dumps(envelope).encode(), lambda *_: True)


def test_nothing_is_parsed_before_the_signature_is_verified() -> None:
    seen: list[bytes] = []

    def refuse(key_id: str, signature: bytes, body: bytes) -> bool:
        seen.append(body)
        return False

    envelope = SignedCommand(key_id="k", signature=base64.b64encode(b"s").decode(), body="{not json")
    with pytest.raises(WireError, match="signature"):
        open_command(encode(envelope), refuse)
    assert seen == [b"{not json"]


def test_a_command_that_no_gateway_would_read_is_not_signed() -> None:
    config = {f"{n}" + "k" * 100: '"' * 1000 for n in range(60)}
    with pytest.raises(WireError, match="cap"):
        sign_command(command_of(train_of(config)), sign)


def test_the_largest_command_that_is_signed_is_opened_although_its_quotes_are_escaped_twice() -> None:
    command = command_of(train_of({f"{n}": '"\\' * 500 for n in range(31)}))
    assert COMMAND_CAP_BYTES * 0.95 < len(encode(command)) <= COMMAND_CAP_BYTES
    assert open_command(encode(sign_command(command, sign)), verify) == command


def command_of(action: Train) -> Command:
    return Command(
        fleet="f",
        gateway="g",
        boot_id="b",
        command_id="c",
        sequence=1,
        duration_s=5.0,
        action=action,
    )


def train_of(config: dict[str, str]) -> Train:
    reference = {"digest": "0" * 64, "length": 1, "chunk_list": "1" * 64}
    return Train.model_validate(
        {
            "adaptation": "a",
            "round": 1,
            "bundle": "2" * 64,
            "base": reference,
            "cohort": "root",
            "training_graph": "adam",
            "learning_rate": 0.003,
            "epochs": 3,
            "batch_size": 32,
            "min_samples": 1,
            "max_samples": 10,
            "seed": 0,
            "config": config,
        }
    )

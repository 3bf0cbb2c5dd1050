"""``down/<gw>/command``: signed orders of the bridge to one gateway."""

import base64
import binascii
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.codec import (
    Count,
    Digest,
    Finite,
    Identifier,
    Message,
    Name,
    Positive,
    Scalar,
    Table,
    WireModel,
    decode,
    encode,
)
from edge_agent.wire.errors import WireError

COMMAND_CAP_BYTES = 64 * 1024
ENVELOPE_CAP_BYTES = 2 * COMMAND_CAP_BYTES + 4096  # a body's quotes are escaped in the envelope
Duration = Annotated[float, Field(gt=0, le=7 * 86_400, allow_inf_nan=False)]


class Train(WireModel):
    """One local round from the given base weights.

    ``training_graph`` names one of the bundle's, and so what is trained; ``coding`` is the update's. ``scalars``
    sets scalars of the graph other than the learning rate. Under the schedule ``fed-ade`` the rate moves between
    ``learning_rate_min`` and ``learning_rate``. ``task`` keeps to the samples of that task. ``send_worse``: an update
    that made the held-out loss worse is sent all the same.
    ``config`` is Flower's train config, passed through to the worker and back.
    """

    kind: Literal["train"] = "train"
    adaptation: Name
    round: Count
    bundle: Digest
    base: BlobReference
    cohort: Name
    training_graph: Name
    learning_rate: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)]
    epochs: Annotated[int, Field(ge=1, le=1000)]
    batch_size: Annotated[int, Field(ge=1, le=4096)]
    min_samples: Positive
    max_samples: Positive
    seed: Count
    coding: Literal["fp32", "fp16", "int8"] = "fp16"
    scalars: Annotated[Table[Name, Finite], Field(max_length=64)] = {}
    schedule: Literal["constant", "fed-ade"] = "constant"
    learning_rate_min: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    task: Name | None = None
    send_worse: bool = False
    config: Annotated[Table[Name, Scalar], Field(max_length=64)] = {}


class Evaluate(WireModel):
    """Run named weights over holdout samples, else proof samples, since a given sample."""

    kind: Literal["evaluate"] = "evaluate"
    bundle: Digest
    weights: BlobReference
    since_sample: Name | None = None
    max_samples: Positive = 10_000
    config: Annotated[Table[Name, Scalar], Field(max_length=64)] = {}


class Configure(WireModel):
    """Change operator settings that the agent lets the bridge change."""

    kind: Literal["configure"] = "configure"
    state_interval_s: Annotated[float, Field(ge=1, le=3600)] | None = None
    training_enabled: bool | None = None


class Identify(WireModel):
    """Publish presence and state now."""

    kind: Literal["identify"] = "identify"


CommandAction = Annotated[Train | Evaluate | Configure | Identify, Field(discriminator="kind")]


class Command(Message):
    """What is signed: who, for which agent start, which order, for how long.

    ``duration_s`` counts from receipt; ``sequence`` counts per boot id. The same command id
    signed again for a new boot id is the same order.
    """

    fleet: Identifier
    gateway: Identifier
    boot_id: Name
    command_id: Name
    sequence: Count
    duration_s: Duration
    action: CommandAction


class SignedCommand(Message):
    """The exact signed bytes of a :class:`Command`, and the signature over them."""

    key_id: Name
    signature: Annotated[str, StringConstraints(max_length=200)]
    body: Annotated[str, StringConstraints(max_length=COMMAND_CAP_BYTES)]

    def signature_bytes(self) -> bytes:
        """The decoded Ed25519 signature.

        Raises:
            WireError: not base64.
        """
        try:
            return base64.b64decode(self.signature, validate=True)
        except (binascii.Error, ValueError):
            raise WireError("command", "signature: not base64") from None


Sign = Callable[[bytes], tuple[str, bytes]]
Verify = Callable[[str, bytes, bytes], bool]


def sign_command(command: Command, sign: Sign) -> SignedCommand:
    """Sign a command.

    Args:
        sign: bytes to (key id, Ed25519 signature).

    Raises:
        WireError: the command is larger than a gateway would read.
    """
    body = encode(command)
    if len(body) > COMMAND_CAP_BYTES:
        raise WireError("command", f"{len(body)} bytes, the cap is {COMMAND_CAP_BYTES}")
    key_id, signature = sign(body)
    return SignedCommand(key_id=key_id, signature=base64.b64encode(signature).decode(), body=body.decode())


def open_command(payload: bytes, verify: Verify) -> Command:
    """Verify the signed bytes, then parse them.

    Args:
        payload: a :class:`SignedCommand` from outside.
        verify: (key id, signature, signed bytes) to whether a trusted key made it.

    Raises:
        WireError: too large, malformed, or not signed by a trusted command key.
    """
    envelope = decode(SignedCommand, payload, cap_bytes=ENVELOPE_CAP_BYTES)
    body = envelope.body.encode()
    if not verify(envelope.key_id, envelope.signature_bytes(), body):
        raise WireError("command", f"signature by key {envelope.key_id!r} is not valid")
    return decode(Command, body, cap_bytes=COMMAND_CAP_BYTES)


__all__ = [
    "COMMAND_CAP_BYTES",
    "ENVELOPE_CAP_BYTES",
    "Command",
    "CommandAction",
    "Configure",
    "Evaluate",
    "Identify",
    "SignedCommand",
    "Train",
    "open_command",
    "sign_command",
]

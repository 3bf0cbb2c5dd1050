"""JSON messages: size cap first, then parse, then check; unknown fields are ignored."""

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from edge_agent.wire.errors import WireError

SCHEMA_VERSION = 1

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Text = Annotated[str, StringConstraints(max_length=2000)]
Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,64}$")]
Count = Annotated[int, Field(ge=0, le=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Scalar = bool | int | Finite | Annotated[str, StringConstraints(max_length=1000)]


class WireModel(BaseModel):
    """Base of everything that crosses the wire: frozen, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, ser_json_inf_nan="null")


class Message(WireModel):
    """A message with its schema version."""

    schema_version: Literal[1] = Field(default=1, alias="schema")


M = TypeVar("M", bound=WireModel)


def encode(message: WireModel) -> bytes:
    """Compact UTF-8 JSON with the wire's field names."""
    return message.model_dump_json(by_alias=True, exclude_none=True).encode()


def decode(model: type[M], payload: bytes, *, cap_bytes: int) -> M:
    """Read a message of a known kind.

    Args:
        payload: bytes from outside.
        cap_bytes: the most that is parsed.

    Raises:
        WireError: too large, no JSON, or a field missing or wrong (named).
    """
    what = model.__name__
    if len(payload) > cap_bytes:
        raise WireError(what, f"{len(payload)} bytes, the cap is {cap_bytes}")
    try:
        return model.model_validate_json(payload)
    except ValidationError as error:
        raise WireError(what, _first_problem(error)) from None
    except (ValueError, RecursionError) as error:
        raise WireError(what, f"not JSON ({type(error).__name__})") from None


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "message"
    return f"{place}: {first['msg']}"

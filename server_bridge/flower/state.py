"""What a strategy must remember, as bytes for the store."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from edge_agent.errors import DataError

STATE_SCHEMA = 1
_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class StrategyState:
    """A strategy's whole memory between two rounds.

    Attributes:
        document: JSON values.
        tensors: named groups of named tensors, any numeric dtype.
    """

    document: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, dict[str, NDArray[Any]]] = field(default_factory=dict)

    def group(self, prefix: str) -> dict[str, dict[str, NDArray[Any]]]:
        """The groups of tensors whose names begin so, by the rest of their names."""
        return {name.removeprefix(prefix): group for name, group in self.tensors.items() if name.startswith(prefix)}


def encode_state(state: StrategyState) -> bytes:
    """Deterministic bytes: length of the JSON part, the JSON part, safetensors."""
    groups = [(group, list(tensors)) for group, tensors in sorted(state.tensors.items())]
    flat = {
        f"{g}.{t}": np.ascontiguousarray(state.tensors[group][name])
        for g, (group, names) in enumerate(groups)
        for t, name in enumerate(names)
    }
    content = {"schema": STATE_SCHEMA, "document": state.document, "groups": groups}
    head = json.dumps(content, sort_keys=True, allow_nan=False).encode()
    return len(head).to_bytes(_LENGTH_BYTES, "big") + head + save(flat)


def decode_state(payload: bytes) -> StrategyState:
    """The state in bytes from the store.

    Raises:
        DataError: they are none of :func:`encode_state`'s.
    """
    try:
        body = _LENGTH_BYTES + int.from_bytes(payload[:_LENGTH_BYTES], "big")
        content = json.loads(payload[_LENGTH_BYTES:body])
        if content["schema"] != STATE_SCHEMA:
            raise ValueError(f"schema {content['schema']}")
        flat: Mapping[str, NDArray[Any]] = load(payload[body:])
        tensors = {
            str(group): {str(name): flat[f"{g}.{t}"] for t, name in enumerate(names)}
            for g, (group, names) in enumerate(content["groups"])
        }
        return StrategyState(document=dict(content["document"]), tensors=tensors)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise DataError(f"the stored strategy state cannot be read: {error}") from error

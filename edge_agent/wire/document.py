"""Generated documents of the contract: JSON Schemas, an AsyncAPI document, the protocol page. Pure."""

import json
import re
from typing import Any

from pydantic import BaseModel

from edge_agent.wire.blobs import ChunkList
from edge_agent.wire.codec import Message
from edge_agent.wire.manifest import Manifest
from edge_agent.wire.messages.command import Command
from edge_agent.wire.protocol_page import protocol_page
from edge_agent.wire.provision import ProvisionedFloors
from edge_agent.wire.release import BundleTarget, CohortTarget, FleetTarget, MembershipTarget
from edge_agent.wire.table import TOPIC_TABLE, TopicRow
from edge_agent.wire.topics import ROOT

Json = dict[str, Any]

FILE_MODELS: tuple[type[Message], ...] = (
    Command,
    ChunkList,
    Manifest,
    FleetTarget,
    BundleTarget,
    MembershipTarget,
    CohortTarget,
    ProvisionedFloors,
)
_PARAMETER = {
    "fleet": "[A-Za-z0-9_-]{1,64}",
    "gateway": "[A-Za-z0-9_-]{1,64}; certificate common name, MQTT username and client id",
    "digest": "SHA-256 in lower-case hexadecimal",
    "index": "decimal, from 0",
}


def documents() -> dict[str, str]:
    """Every generated document, by its path under ``docs/``."""
    models = (*(row.message for row in TOPIC_TABLE if row.message is not None), *FILE_MODELS)
    schemas = {model.__name__: schema_of(model) for model in models}
    pages = {f"schemas/{name}.json": _text(schema) for name, schema in schemas.items()}
    return {
        **pages,
        "asyncapi.json": _text(asyncapi()),
        "protocol.md": protocol_page(TOPIC_TABLE, {model.__name__: model for model in models}, schemas),
    }


def schema_of(model: type[BaseModel]) -> Json:
    """A model's JSON Schema (2020-12) as its bytes are checked on receipt."""
    schema: Json = model.model_json_schema(by_alias=True, mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    for part in (schema, *schema.get("$defs", {}).values()):
        _require_constants(part)
    return schema


def _require_constants(schema: Json) -> None:
    """``schema`` and ``kind`` have defaults for the writer; the reader wants to see them."""
    constants = [name for name, node in schema.get("properties", {}).items() if "const" in node]
    if constants:
        schema["required"] = [*constants, *schema.get("required", [])]


def asyncapi() -> Json:
    """The topic table as AsyncAPI 3.0, operations seen from a gateway."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "clma-edge: gateways and bridge over MQTT 5",
            "version": "1",
            "description": "Generated from edge_agent/wire. All messages at QoS 1. The prose is in protocol.md.",
        },
        "defaultContentType": "application/json",
        "channels": {row.kind.value: _channel(row) for row in TOPIC_TABLE},
        "operations": {row.kind.value: _operation(row) for row in TOPIC_TABLE},
    }


def _channel(row: TopicRow) -> Json:
    address = f"{ROOT}/{{fleet}}/{row.topic}"
    parameters = {name: {"description": _PARAMETER[name]} for name in re.findall(r"{(\w+)}", address)}
    return {
        "address": address,
        "description": row.purpose,
        "parameters": parameters,
        "messages": {_message_name(row): _message(row)},
    }


def _message(row: TopicRow) -> Json:
    if row.message is None:
        return {"contentType": "application/octet-stream", "summary": f"at most {row.cap_bytes} bytes"}
    return {
        "payload": {"$ref": f"schemas/{row.message.__name__}.json"},
        "summary": f"at most {row.cap_bytes} bytes",
    }


def _operation(row: TopicRow) -> Json:
    return {
        "action": "send" if row.writer == "gateway" else "receive",
        "channel": {"$ref": f"#/channels/{row.kind.value}"},
        "messages": [{"$ref": f"#/channels/{row.kind.value}/messages/{_message_name(row)}"}],
        "bindings": {"mqtt": {"qos": 1, "retain": row.retained}},
    }


def _message_name(row: TopicRow) -> str:
    return row.message.__name__ if row.message is not None else "Chunk"


def _text(value: Json) -> str:
    return json.dumps(value, indent=2, sort_keys=False, ensure_ascii=False) + "\n"

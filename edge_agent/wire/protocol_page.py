"""The protocol page: hand-written prose around tables made from the models. Pure."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from edge_agent.wire.codec import Message
from edge_agent.wire.rights import RIGHTS
from edge_agent.wire.table import TopicRow
from edge_agent.wire.topics import ROOT

Json = Mapping[str, Any]

_PATTERN_WORDS = {
    "^[A-Za-z0-9_-]{1,64}$": "identifier",
    "^[0-9a-f]{64}$": "digest",
    "^[a-z0-9_-]{1,64}$": "word",
    r"^[^\x00-\x1f\x7f]{1,128}$": "name",
    "^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$": "file name",
    "^(root|c[1-9][0-9]{0,8})$": "cohort id",
    r"^([0-9]{1,9}\.)?[a-z]{1,32}\.json$": "metadata name",
}

_HEAD = """\
# Protocol

What gateways and bridge say to each other: MQTT 5, QoS 1, below `{root}/<fleet>/`. This page, the
[JSON Schemas](schemas/) and the [AsyncAPI document](asyncapi.json) are generated from `edge_agent/wire`
by `python -m tests.docs_build`; `make check` fails when they are stale.

## Topics

"""

_RIGHTS = """
## Rights

Every connection has an identity of its own: its client id, its username and its certificate's common name are the
same. The broker's access list (`server-bridge pki` makes it) gives each what it needs below `{root}/<fleet>/`, and
denies all else, also in other fleets' trees:

{rights}
`<gw>.check` is for `edge-agent check` and has no right: rights it tries as `<gw>`, where no agent runs, by saying that
the gateway is offline. The bridge writes below `up/` only to clear what is retained
there unasked. It does not rely on the list: it drops and counts a message whose topic names another fleet, or whose
`gateway` is not the topic's. A broker answers a denied subscription like a granted one, and delivers nothing.

## Reading

A payload is refused unread when it is larger than its row's cap; then it is parsed, then checked. Types are
taken as they are: `"1"`, `1.0` and `true` are no integers. Unknown fields are ignored, so that a newer sender can
add some. Every message carries `schema` (now 1); one without it, or with another number, is refused. Whatever is
wrong with bytes from outside gives one error, is counted, and changes nothing else.

Words used below: an *identifier* is `[A-Za-z0-9_-]{{1,64}}`; a *digest* is a SHA-256 in lower-case hexadecimal;
a *name* is 1 to 128 characters without control characters; a *word* is `[a-z0-9_-]{{1,64}}`, stable, for
machines; a *text* is for people, and cut at 2000 characters. Integers lie within 2^53 of zero, numbers are finite. A
*range* is a pair of integers, both ends included.

## Delivery

A PUBACK says nothing about the receiver. Events are outbox messages: the bridge acknowledges their (epoch,
sequence) on `down/<gw>/ack` after its commit, and only then does the gateway delete them. `low` and
`dropped` let the bridge keep a low-water mark and a small set of gaps. A gateway re-sends on a new bridge boot id
and on its own reconnect, else with back-off and jitter. Nothing relies on order.

A reply is kept by the gateway and sent again when its command comes again. An update is not pushed: the reply
carries its manifest, the bridge grants at most 8 chunks at a time, and a grant with no index says that the whole
blob has arrived.

## Commands

A command is signed with Ed25519 over the exact bytes in `body`, a [Command](#command); the envelope names the key,
which signed TUF metadata lists. The gateway verifies first and parses then. It refuses a command with the retain
flag, for another gateway or fleet, or signed by no listed key. One that names another boot id is answered
`stale-boot`; one whose sequence is not above the highest seen of this boot id is answered `sequence-low`. Times are
durations that count from receipt, never dates. The same command id signed again for a new boot id is the same order:
its stored result is sent again, or the work is taken up.

## Blobs

Weights, bundle files and target files are content-addressed. A blob reference names digest, length and the digest of
the *chunk list*, a small JSON blob that travels as one message at index 0 under its own digest. A chunk has 16, 32,
64 or 128 KiB (32 by default, more where there would be over 1900 of them); the last may be shorter. Every chunk is
checked on arrival.

## Weights and updates

Weights are safetensors with float32 tensors, names sorted. An update is trained minus base weights as safetensors
within one zstd frame that states its content size:

| coding | tensors |
|---|---|
| `fp32` | `<tensor>` float32 |
| `fp16` | `<tensor>` float16, clipped to its range |
| `int8` | `code.<tensor>` int8 and `scale.<tensor>` float32, a scale per 1,024 values, row-major |

## Releases

`all/release` holds TUF metadata only; the target files it names travel as blobs. `membership.json` is within one zstd
frame that states its content size. How a map is verified is not this page's matter: see the TUF specification and
the decision records.

## Messages
"""


def protocol_page(rows: Sequence[TopicRow], models: Mapping[str, type[Message]], schemas: Mapping[str, Json]) -> str:
    """``protocol.md``.

    Args:
        rows: the topic table.
        models: by name, in the order of their sections.
        schemas: their JSON Schemas.
    """
    parts = [_HEAD.format(root=ROOT), _topic_table(rows), _RIGHTS.format(root=ROOT, rights=_rights_table())]
    described: set[str] = set()
    for name, model in models.items():
        parts.append(
            _section(f"### {name}", _prose(model), schemas[name], [row for row in rows if row.message is model])
        )
        for part, schema in schemas[name].get("$defs", {}).items():
            if part not in described and part not in models:
                described.add(part)
                parts.append(_section(f"#### {part}", schema.get("description", ""), schema, []))
    return "".join(parts)


def _topic_table(rows: Sequence[TopicRow]) -> str:
    lines = ["| topic | retained | written by | message | cap, bytes | what |", "|---|---|---|---|---|---|"]
    for row in rows:
        message = f"[{row.message.__name__}](#{row.message.__name__.lower()})" if row.message else "raw bytes"
        topic = _shown(row.topic)
        writer = f"{row.writer} and its will" if row.will else row.writer
        retained = "yes" if row.retained else "no"
        lines.append(f"| `{topic}` | {retained} | {writer} | {message} | {row.cap_bytes} | {row.purpose} |")
    return "\n".join(lines) + "\n"


def _rights_table() -> str:
    lines = ["| identity | may | topics |", "|---|---|---|"]
    for identity, access in dict.fromkeys((right.identity, right.access) for right in RIGHTS):
        topics = [right.topic for right in RIGHTS if (right.identity, right.access) == (identity, access)]
        lines.append(f"| `{_shown(identity)}` | {access} | {', '.join(f'`{_shown(topic)}`' for topic in topics)} |")
    return "\n".join(lines) + "\n"


def _shown(template: str) -> str:
    return template.replace("{gateway}", "<gw>").replace("{", "<").replace("}", ">")


def _prose(model: type[Message]) -> str:
    return inspect.getdoc(model) or ""


def _section(heading: str, prose: str, schema: Json, rows: Sequence[TopicRow]) -> str:
    where = "".join(f"On `{row.topic}`, at most {row.cap_bytes} bytes.\n\n" for row in rows)
    return f"\n{heading}\n\n{where}{prose.replace('``', '`')}\n\n{_field_table(schema)}"


def _field_table(schema: Json) -> str:
    lines = ["| field | type | needed |", "|---|---|---|"]
    required = set(schema.get("required", []))
    for name, node in schema.get("properties", {}).items():
        lines.append(f"| `{name}` | {type_text(node)} | {_needed(name in required, node)} |")
    return "\n".join(lines) + "\n"


def _needed(required: bool, node: Json) -> str:
    if required:
        return "yes"
    default = node.get("default")
    return "no" if default in (None, [], {}, "") else f"no; else `{default}`"


def type_text(node: Json) -> str:
    """A JSON Schema node in a few words."""
    if "$ref" in node:
        name = str(node["$ref"]).rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    choices = node.get("anyOf") or node.get("oneOf")
    if choices:
        return " or ".join(dict.fromkeys(type_text(choice) for choice in choices if choice.get("type") != "null"))
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    return _plain_type(node)


def _plain_type(node: Json) -> str:
    kind = node.get("type")
    if kind == "array":
        return _array_text(node)
    if kind == "object":
        keys = _PATTERN_WORDS.get(next(iter(node.get("patternProperties", {})), ""), "name")
        values = next(iter(node.get("patternProperties", {}).values()), node.get("additionalProperties", {}))
        return f"object, {keys} to {type_text(values)}{_limit(node, 'maxProperties')}"
    if kind == "string":
        if "pattern" in node:
            return _PATTERN_WORDS.get(node["pattern"], f"`{node['pattern'].replace('|', chr(92) + '|')}`")
        return "text" if node.get("maxLength") == 2000 else f"string{_limit(node, 'maxLength')}"
    return f"{kind}{_bounds(node)}"


def _array_text(node: Json) -> str:
    if "prefixItems" in node:
        return "range"
    return f"array of {type_text(node.get('items', {}))}{_limit(node, 'maxItems')}"


def _limit(node: Json, key: str) -> str:
    return f" (at most {node[key]})" if key in node else ""


def _bounds(node: Json) -> str:
    """Bounds that say more than the range of exact integers."""
    low = f" ≥ {node['minimum']}" if node.get("minimum", -(2**53)) > -(2**53) else ""
    low = f" > {node['exclusiveMinimum']}" if "exclusiveMinimum" in node else low
    high = f" ≤ {node['maximum']}" if node.get("maximum", 2**53) < 2**53 else ""
    return low + high

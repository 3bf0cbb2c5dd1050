import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_agent.wire.codec import encode
from edge_agent.wire.errors import WireError
from tests.wire.readers import READER_NAMES, READERS, Reader
from tests.wire.strategies import json_values, models

every_reader = pytest.mark.parametrize("reader", READERS, ids=READER_NAMES)
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def read_or_wire_error(reader: Reader, payload: bytes) -> object:
    try:
        return reader.read(payload)
    except WireError as error:
        return error


@every_reader
@few
@given(data=st.data())
def test_a_message_comes_back_as_it_went(reader: Reader, data: st.DataObject) -> None:
    message = data.draw(models(reader.model))
    payload = encode(message)
    assert reader.read(payload) == message
    assert encode(reader.read(payload)) == payload


@every_reader
@few
@given(payload=st.binary(max_size=200))
def test_any_bytes_give_a_message_or_a_wire_error(reader: Reader, payload: bytes) -> None:
    read_or_wire_error(reader, payload)


@every_reader
@few
@given(value=json_values)
def test_any_json_gives_a_message_or_a_wire_error(reader: Reader, value: Any) -> None:
    read_or_wire_error(reader, json.dumps(value).encode())


@every_reader
@few
@given(data=st.data())
def test_a_valid_message_with_one_value_replaced_gives_a_message_or_a_wire_error(
    reader: Reader, data: st.DataObject
) -> None:
    value = json.loads(encode(data.draw(models(reader.model))))
    place = data.draw(st.sampled_from(places(value)))
    changed = replaced(value, place, data.draw(json_values | st.sampled_from(ODD_VALUES)))
    read_or_wire_error(reader, json.dumps(changed).encode())


@every_reader
@few
@given(data=st.data())
def test_a_valid_message_with_bytes_changed_gives_a_message_or_a_wire_error(
    reader: Reader, data: st.DataObject
) -> None:
    payload = bytearray(encode(data.draw(models(reader.model))))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(payload)))
        payload[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    read_or_wire_error(reader, bytes(payload))


@every_reader
@pytest.mark.parametrize(
    "field",
    [
        b'"x":' + b"[" * 10_000 + b"]" * 10_000,
        b'"x":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'"schema":' + b"9" * 3000,
        b'"schema":1e999',
        b'"x":' + b"9" * 3000,
        b'"x":NaN',
        b'"x":"\\ud800"',
        b'"\\ud800":1',
        b'"x":"\xed\xa0\x80"',
        b'"x":"\x00"',
        b'"schema":1,"schema":2',
        b'"schema_version":1',
        b'"":""',
    ],
    ids=lambda field: field[:16].decode(errors="replace"),
)
def test_hostile_json_gives_a_message_or_a_wire_error(reader: Reader, field: bytes) -> None:
    read_or_wire_error(reader, b"{" + field + b"}")
    read_or_wire_error(reader, field[4:])


@every_reader
@few
@given(data=st.data())
def test_a_schema_version_is_needed_and_must_be_known(reader: Reader, data: st.DataObject) -> None:
    value = json.loads(encode(data.draw(models(reader.model))))
    for other in (None, 0, 2, "1", True, 1.0):
        with pytest.raises(WireError, match="schema"):
            reader.read(json.dumps({**value, "schema": other}).encode())
    del value["schema"]
    with pytest.raises(WireError, match="schema"):
        reader.read(json.dumps(value).encode())


@every_reader
@few
@given(data=st.data())
def test_unknown_fields_are_ignored(reader: Reader, data: st.DataObject) -> None:
    message = data.draw(models(reader.model))
    value = {**json.loads(encode(message)), "from-the-future": {"a": [1]}}
    assert reader.read(json.dumps(value).encode()) == message


@every_reader
def test_a_payload_over_the_cap_is_not_parsed(reader: Reader) -> None:
    with pytest.raises(WireError, match="the cap is"):
        reader.read(b" " * (reader.cap_bytes + 1))


ODD_VALUES: list[Any] = [
    10**400,
    -(10**18),
    2**63,
    1e308,
    "",
    "a" * 3000,
    "\x00",
    "../../etc/passwd",
    "\u202e",
    [[]] * 3000,
    {str(index): index for index in range(3000)},
    [[5, 3]],
    [[1, 2, 3]],
    ["1", "2"],
    True,
]


def places(value: Any, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(place for key, item in inner for place in places(item, (*here, key)))]


def replaced(value: Any, place: tuple[str | int, ...], by: Any) -> Any:
    if not place:
        return by
    changed = copy.deepcopy(value)
    node = changed
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = by
    return changed

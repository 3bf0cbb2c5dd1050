import base64
import json

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.wire.errors import WireError
from edge_agent.wire.release import (
    RELEASE_MAP_CAP_BYTES,
    TARGET_CAP_BYTES,
    Membership,
    MembershipTarget,
    decode_membership,
    decode_release_map,
    encode_membership,
    encode_release_map,
    unpack,
)
from tests.wire.strategies import models

metadata_names = st.from_regex(r"([0-9]{1,9}\.)?[a-z]{1,32}\.json", fullmatch=True)
maps = st.dictionaries(metadata_names, st.binary(max_size=300), min_size=1, max_size=6)


@given(files=maps)
def test_a_release_map_comes_back(files: dict[str, bytes]) -> None:
    payload = encode_release_map(files)
    assert decode_release_map(payload) == files
    assert encode_release_map(dict(reversed(files.items()))) == payload


@given(payload=st.binary(max_size=200))
def test_any_bytes_are_a_release_map_or_a_wire_error(payload: bytes) -> None:
    with pytest.raises(WireError):
        decode_release_map(payload)


@given(files=maps, data=st.data())
def test_changed_bytes_are_a_release_map_or_a_wire_error(files: dict[str, bytes], data: st.DataObject) -> None:
    payload = bytearray(encode_release_map(files))
    position = data.draw(st.integers(0, len(payload) - 1))
    payload[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        decode_release_map(bytes(payload))
    except WireError:
        return


@pytest.mark.parametrize("name", ["../x.json", "a/b.json", "A.json", "x", "1.2.x.json", "x.json\n", ".json", ""])
def test_a_file_name_that_is_no_metadata_is_refused(name: str) -> None:
    with pytest.raises(WireError):
        decode_release_map(json.dumps({"schema": 1, "files": {name: ""}}).encode())


@pytest.mark.parametrize("text", ["a", "====", "YQ", "ä", "Y Q==", "YQ==\n"])
def test_a_file_that_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(WireError, match="base64"):
        decode_release_map(json.dumps({"schema": 1, "files": {"root.json": text}}).encode())


def test_a_map_over_the_cap_is_neither_made_nor_read() -> None:
    with pytest.raises(WireError, match="cap"):
        encode_release_map({"root.json": bytes(RELEASE_MAP_CAP_BYTES)})
    text = base64.b64encode(bytes(RELEASE_MAP_CAP_BYTES)).decode()
    with pytest.raises(WireError, match="cap"):
        decode_release_map(json.dumps({"schema": 1, "files": {"root.json": text}}).encode())


@given(target=models(MembershipTarget))
def test_membership_comes_back(target: MembershipTarget) -> None:
    assert decode_membership(encode_membership(target)) == target


@given(payload=st.binary(max_size=200))
def test_any_bytes_are_a_membership_or_a_wire_error(payload: bytes) -> None:
    with pytest.raises(WireError):
        decode_membership(payload)
    try:
        decode_membership(zstandard.compress(payload))
    except WireError:
        return


@settings(deadline=None)
@given(target=models(MembershipTarget), data=st.data())
def test_changed_bytes_are_a_membership_or_a_wire_error(target: MembershipTarget, data: st.DataObject) -> None:
    payload = bytearray(encode_membership(target))
    position = data.draw(st.integers(0, len(payload) - 1))
    payload[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        decode_membership(bytes(payload))
    except WireError:
        return


def test_ten_thousand_gateways_fit_and_take_less_than_a_megabyte() -> None:
    members = {f"gateway-{n:05d}": Membership(bundle=f"{n % 2:064x}", cohort=f"c{n % 50 + 1}") for n in range(10_000)}
    payload = encode_membership(MembershipTarget(gateways=members))
    assert len(payload) < 1_000_000
    assert decode_membership(payload).gateways == members


def test_a_frame_that_states_no_size_or_too_large_a_one_is_refused() -> None:
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(b"{}")
    with pytest.raises(WireError, match="unknown"):
        unpack(unsized, 100, "thing")
    with pytest.raises(WireError, match="above the cap"):
        unpack(zstandard.compress(bytes(101)), 100, "thing")
    assert unpack(zstandard.compress(bytes(100)), 100, "thing") == bytes(100)


def test_a_packed_payload_over_the_cap_is_not_looked_at() -> None:
    with pytest.raises(WireError, match="packed"):
        unpack(bytes(TARGET_CAP_BYTES * 2), TARGET_CAP_BYTES, "thing")


@pytest.mark.parametrize("extra", [b"x", zstandard.compress(b"second frame")])
def test_bytes_after_the_frame_are_refused(extra: bytes) -> None:
    with pytest.raises(WireError):
        unpack(zstandard.compress(b"first frame") + extra, 100, "thing")

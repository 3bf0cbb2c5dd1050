"""Nothing that bytes from outside do costs more than a small multiple of the cap in memory."""

import subprocess
import sys

import pytest

PARSE_FACTOR = 40  # of small objects; measured 31

PROGRAM = f"""
import resource, struct, sys
import numpy, zstandard
from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.release import TARGET_CAP_BYTES, decode_membership, decode_release_map
from edge_agent.wire.tensors import decode_weights
from edge_agent.wire.updates import decode_update
from tests.wire.readers import READERS

def limit(more_bytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more_bytes, resource.RLIM_INFINITY))

def attempt(read, *arguments):
    try:
        read(*arguments)
    except WireError:
        pass

def stated(frame, size):
    packed = bytearray(frame)
    flag, single = packed[4] >> 6, packed[4] >> 5 & 1
    start = 5 + (0 if single else 1) + (0, 1, 2, 4)[packed[4] & 3]
    width = (1 if single else 0, 2, 4, 8)[flag]
    packed[start:start + width] = (size - 256 if width == 2 else size).to_bytes(width, "little")
    return bytes(packed)

FILLS = [b"[],", b"{{}},", b'"",', b"0,", b"null,", b'{{"a":1}},', b'["a"],', b"1e5,", b"9" * 60 + b","]
FIELDS = ("x", "files", "gateways", "digests", "dropped", "committed", "metrics", "eligible", "trainable", "body")

def json_attacks(cap):
    for field in FIELDS:
        for fill in FILLS:
            count = (cap - 64) // len(fill)
            yield b'{{"schema":1,"' + field.encode() + b'":[' + (fill * count)[:-1] + b"]}}"
        entries = b",".join(b'"%x":1' % n for n in range(cap // 10))[: cap - 64].rsplit(b",", 1)[0]
        yield b'{{"schema":1,"' + field.encode() + b'":{{' + entries + b"}}}}"

if sys.argv[1] == "json":
    reader = next(reader for reader in READERS if reader.name == sys.argv[2])
    for payload in json_attacks(min(reader.cap_bytes, 512 * 1024)):
        limit({PARSE_FACTOR} * min(reader.cap_bytes, 512 * 1024) + 4 * 1024 * 1024)
        attempt(reader.read, payload)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
else:
    spec = [TrainableSpec(name="w", dtype="float32", shape=[1000])]
    bomb = zstandard.compress(bytes(256 * 1024 * 1024), 1)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 * 1024 * 1024))
    lying = [stated(bomb, size) for size in (300, 5000, 1024 * 1024, TARGET_CAP_BYTES)]
    headers = [struct.pack("<Q", n) + b"{{}}" for n in (2**27, 2**40, 2**63)]
    wide = b'{{"w":{{"dtype":"F32","shape":[268435456],"data_offsets":[0,1073741824]}}}}'
    limit({PARSE_FACTOR} * TARGET_CAP_BYTES)
    for payload in (bomb, unsized, *lying):
        attempt(decode_membership, payload)
        attempt(decode_update, payload, "fp32", spec)
    for payload in (*headers, struct.pack("<Q", len(wide)) + wide + bytes(8)):
        attempt(decode_weights, payload)
        attempt(decode_update, zstandard.compress(payload), "int8", spec)
print("survived")
"""


@pytest.mark.parametrize(
    "name",
    [
        "Presence",
        "Event",
        "Reply",
        "SignedCommand",
        "ReleaseMap",
        "ChunkList",
        "Manifest",
        "MembershipTarget",
    ],
)
def test_hostile_json_costs_a_bounded_multiple_of_its_size(name: str) -> None:
    run("json", name)


def test_compression_bombs_and_lying_headers_cost_no_more_than_the_cap() -> None:
    run("binary")


def run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr[-2000:]

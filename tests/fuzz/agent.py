"""Every topic that an agent listens to, at its real inbox, orders, outbox, uploader and updater; and its files."""

import base64
import queue
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edge_agent.config import load_settings
from edge_agent.errors import ConfigError, DataError
from edge_agent.link.database import open_database
from edge_agent.link.events import Received
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.link.settings import BrokerSettings
from edge_agent.link.upload import Uploader
from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.runtime.inbox import Inbox, Receivers
from edge_agent.sources.mqtt_json import read_label, read_sample
from edge_agent.wire.blobs import make_chunk_list, sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import read_manifest
from edge_agent.wire.messages import Ack, BridgePresence, ChunkGrant, Configure, ErrorEvent, Identify, SignedCommand
from edge_agent.wire.messages.command import CommandAction
from edge_agent.wire.release import encode_release_map
from edge_agent.wire.tensors import encode_weights
from server_bridge.releases.provision import init_fleet, provision_gateway
from tests.fuzz.target import Target
from tests.ota.fleet_maps import FleetMaps
from tests.ota.gateway import GatewayParts, maps_of
from tests.runtime.desk import EVALUATE, GATEWAY, TOPICS, TRAIN, Desk
from tests.training.tiny_bundle import tiny_bundle, tiny_weights

UPDATE = np.random.default_rng(0).bytes(50_000)


class AgentParts:
    """The parts behind an agent's inbox."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.desk = Desk(directory)
        self.outbox = Outbox(open_database(directory / "outbox.db"), GATEWAY, max_bytes=10**6, max_age_s=10**9)
        for _ in range(30):
            self.outbox.put(ErrorEvent(place="p", problem="x"), Priority.TELEMETRY)
        self.uploader = Uploader(BrokerSettings("127.0.0.1", 1), "up", TOPICS, GATEWAY, directory / "updates")
        self.uploader.offer("c1", UPDATE, make_chunk_list(UPDATE))
        self.maps: list[bytes] = []
        self.inbox = Inbox(
            TOPICS.fleet,
            queue.Queue(),
            Receivers(
                connected=lambda connection: None,
                disconnected=lambda event: None,
                published=lambda event: None,
                command=lambda payload, retained: self.desk.orders.receive(payload, retained=retained),
                ack=self._acknowledge,
                release=self.maps.append,
                bridge=lambda presence: None,
            ),
        )

    def take(self, topic: str, payload: bytes, retain: bool) -> str:
        refused = self._refused()
        self.inbox._pass_on(Received(topic, payload, retain))
        self.desk.session.published.clear()
        self.desk.configured.clear()
        self.maps.clear()
        while not self.desk.orders._queue.empty():
            self.desk.orders._open.discard(self.desk.orders._queue.get().command.command_id)
        return "refused" if self._refused() > refused else "taken"

    def _refused(self) -> int:
        counts = (*self.inbox.malformed.values(), *self.desk.orders.refused.values(), self.uploader.refused_grants)
        return sum(counts)

    def check(self) -> None:
        """A genuine command is still obeyed, and only that one."""
        before = self.desk.identified
        self.desk.orders._highest = -1
        self.desk.orders.receive(self.desk.payload(f"genuine-{before}", Identify()), retained=False)
        assert self.desk.identified == before + 1
        self.desk.session.published.clear()

    def signed(self, body: bytes) -> str:
        """What the bridge's key has signed, whatever it is."""
        signer = self.desk.signer
        text = body.decode("utf-8", "replace")[:60_000]
        signature = base64.b64encode(signer.key.sign(text.encode())).decode()
        envelope = SignedCommand(key_id=signer.key_id, signature=signature, body=text)
        return self.take(TOPICS.command(GATEWAY), encode(envelope), False)

    def _acknowledge(self, ack: Ack) -> None:
        if ack.epoch is not None and ack.committed:
            self.outbox.acknowledge(ack.epoch, ack.committed)
        for grant in ack.grants:
            self.uploader.grant(grant)


def targets(directory: Path) -> list[Target]:
    """The agent's topics, release maps, bundles, weights, source messages and settings."""
    parts = AgentParts(directory / "agent")
    desk = parts.desk
    actions: tuple[CommandAction, ...] = (EVALUATE, TRAIN, Identify(), Configure(training_enabled=True))
    commands = [desk.payload(f"c{n}", action) for n, action in enumerate(actions)]
    grant = ChunkGrant(command_id="c1", digest=sha256_hex(UPDATE), indices=[0, 1])
    acks = [
        encode(Ack(bridge_boot_id="b", epoch=parts.outbox.epoch, committed=[(0, 3), (7, 9)])),
        encode(Ack(bridge_boot_id="b", grants=[grant])),
    ]
    topics = [topic.encode() for topic in (TOPICS.command(GATEWAY), TOPICS.ack(GATEWAY), TOPICS.release, TOPICS.bridge)]
    bridge = [encode(BridgePresence(boot_id="b", online=online)) for online in (True, False)]
    bodies = [SignedCommand.model_validate_json(command).body.encode() for command in commands]

    def row(topic: str) -> Callable[[bytes], str]:
        return lambda payload: parts.take(topic, payload, random.Random(payload).random() < 0.1)

    bundle = tiny_bundle(directory / "agent-bundle")
    return [
        Target("agent/command", commands, row(TOPICS.command(GATEWAY)), check=parts.check),
        Target("agent/command-signed", bodies, parts.signed, check=parts.check),
        Target("agent/ack", acks, row(TOPICS.ack(GATEWAY))),
        Target("agent/bridge", bridge, row(TOPICS.bridge)),
        Target("agent/topic", topics, lambda data: parts.take(data.decode("utf-8", "replace"), b"{}", False)),
        *_releases(directory, bundle),
        *_files(directory, bundle),
        *_source(bundle),
        _settings(directory),
    ]


def _releases(directory: Path, bundle: Bundle) -> list[Target]:
    maps = maps_of(bundle)
    folder = directory / "gateway"
    folder.mkdir()
    gateway = GatewayParts(folder, maps, bundle)
    gateway.receive(maps.payload())
    upcoming = maps.advance().payload()
    served = gateway.served

    def feed(data: bytes) -> None:
        gateway.receive(data)
        gateway.outbox.acknowledge(gateway.outbox.epoch, [(0, 10**9)])

    def check() -> None:
        assert gateway.served == served, "a release that nobody signed was activated"

    files = maps.files()
    names = [name for name in files if name != "1.root.json"]

    def one_file(data: bytes) -> None:
        """A map whole in form, in which one metadata file is not what was signed."""
        name = random.Random(data).choice(names)
        if len(data) < 100_000:
            feed(encode_release_map(files | {name: data}))

    return [
        Target("agent/release", [upcoming, FleetMaps().payload()], feed, check=check),
        Target("agent/release-file", [files[name] for name in names], one_file, check=check),
    ]


def _files(directory: Path, bundle: Bundle) -> list[Target]:
    """A bundle's files, in a bundle that names their digests: what a signer might be made to sign."""
    files = {name: (bundle.path / name).read_bytes() for name in ("manifest.json", *bundle.manifest.files)}
    folder = directory / "fuzzed-bundle"
    weights = tiny_weights()

    def write(name: str, data: bytes) -> None:
        manifest = read_manifest(files["manifest.json"])
        listed = manifest.files | ({name: sha256_hex(data)} if name in manifest.files else {})
        content = files | {"manifest.json": encode(manifest.model_copy(update={"files": listed})), name: data}
        for each, content_bytes in content.items():
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
            (folder / each).write_bytes(content_bytes)

    def load(name: str) -> Callable[[bytes], None]:
        def feed(data: bytes) -> None:
            write(name, data)
            loaded = load_bundle(folder)
            if name == "weights.safetensors":
                InferenceModel(loaded, loaded.initial_weights())

        return feed

    def torn(data: bytes) -> None:
        """Any file is replaced and the manifest does not know it."""
        write("manifest.json", files["manifest.json"])
        own = {content: name for name, content in files.items()}
        (folder / own.get(data, random.Random(data).choice(sorted(bundle.manifest.files)))).write_bytes(data)
        load_bundle(folder)

    def graph(name: str, build: Callable[[Bundle], object]) -> Callable[[bytes], None]:
        def feed(data: bytes) -> None:
            write(name, data)
            build(load_bundle(folder))

        return feed

    return [
        Target("agent/bundle-manifest", [files["manifest.json"]], load("manifest.json"), (DataError,)),
        Target("agent/bundle-weights", [files["weights.safetensors"]], load("weights.safetensors"), (DataError,)),
        Target("agent/bundle-torn", list(files.values()), torn, (DataError,)),
        Target(
            "agent/bundle-graph",
            [files["infer.onnx"]],
            graph("infer.onnx", lambda b: InferenceModel(b, weights)),
            (DataError,),
        ),
        Target(
            "agent/bundle-training",
            [files["train/sgd.onnx"]],
            graph("train/sgd.onnx", lambda b: TrainingStep(b, "sgd", weights)),
            (DataError,),
        ),
        Target(
            "agent/weights",
            [encode_weights(tiny_weights(3))],
            lambda data: _model(bundle, data),
            (DataError, WireError),
        ),
    ]


def _model(bundle: Bundle, data: bytes) -> None:
    from edge_agent.wire.tensors import decode_weights

    InferenceModel(bundle, decode_weights(data))


def _source(bundle: Bundle) -> list[Target]:
    inputs = bundle.manifest.inputs
    sample = b'{"id":"s1","time":1.5,"features":{"x":[0.5,1,2,3]},"group":"g","holdout":true}'
    return [
        Target("agent/sample", [sample], lambda data: read_sample(data, inputs), (WireError,)),
        Target("agent/label", [b'{"id":"s1","value":2}'], read_label, (WireError,)),
    ]


def _settings(directory: Path) -> Target:
    fleet = directory / "agent-fleet"
    init_fleet(fleet, tiny_bundle(directory / "settings-bundle").path, "plant")
    (folder,) = provision_gateway(fleet, ["gw1"], directory / "provisioned")
    source = b'\n[source]\nkind = "replay"\npath = "stream.npz"\nrate_hz = 5.0\n'
    given = (folder / "agent.toml").read_bytes() + source
    fuzzed = directory / "fuzzed-agent.toml"

    def feed(data: bytes) -> None:
        fuzzed.write_bytes(data)
        load_settings(fuzzed)

    return Target("agent/settings", [given], feed, (ConfigError,))

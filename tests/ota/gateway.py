"""A gateway's update parts in a directory, without a broker: blobs come from a dictionary."""

from collections.abc import Callable
from pathlib import Path

from edge_agent.errors import TransientError
from edge_agent.link.database import open_database
from edge_agent.link.outbox import Outbox
from edge_agent.model.bundle import Bundle
from edge_agent.ota.floors import Floors
from edge_agent.ota.slot import Slot
from edge_agent.ota.startup import startup
from edge_agent.ota.trust import TrustedReleases
from edge_agent.ota.updater import Parts, Updater
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.serving.server import ModelServer
from edge_agent.wire.blobs import BlobReference, sha256_hex
from edge_agent.wire.codec import decode
from edge_agent.wire.messages.event import EVENT_CAP_BYTES, Event, EventBody, UpdateLifecycleEvent
from edge_agent.wire.provision import ProvisionedFloors
from tests.ota.fleet_maps import NOW_S, FleetMaps

GATEWAY = "gw1"


class Blobs:
    """A source of blobs; what is not in ``content`` is silent."""

    def __init__(self, folder: Path, content: dict[str, bytes]) -> None:
        self.folder = folder
        self.content = content
        self.on_silence: Callable[[BlobReference], None] = lambda reference: None
        self.fetched: list[str] = []
        folder.mkdir(exist_ok=True)

    def fetch(self, reference: BlobReference, *, timeout_s: float, cancelled: Callable[[], bool]) -> Path:
        if reference.digest not in self.content:
            self.on_silence(reference)
            raise TransientError(f"blob {reference.digest} stays silent")
        self.fetched.append(reference.digest)
        path = self.folder / reference.digest
        path.write_bytes(self.content[reference.digest])
        return path


class GatewayParts:
    """Opened again from the same directory, it is the same gateway after a restart."""

    def __init__(self, path: Path, maps: FleetMaps, bundle: Bundle, *, gateway: str = GATEWAY) -> None:
        self.path = path
        self.now_s = NOW_S
        self.activated: list[Slot] = []
        self.database = open_database(path / "agent.db")
        self.outbox = Outbox(self.database, gateway, max_bytes=10**7, max_age_s=10**9)
        self.floors = Floors(self.database)
        self.trusted = TrustedReleases(path / "trust", maps.root, self.floors, lambda: self.now_s)
        self.store = WeightsStore(path / "models", bundle)
        if self.store.is_virgin and not self.floors.initialised:
            self.floors.provision(provisioned_floors(maps), maps.root)
        self.started = startup(self.store)
        loaded = self.started.loaded
        self.server = ModelServer(
            loaded.bundle, loaded.weights, loaded.slot.weights, loaded.slot.version, loaded.slot.cohort
        )
        self.blobs = Blobs(path / "blobs", maps.blobs)
        self.updater = Updater(
            gateway,
            maps.fleet,
            Parts(self.database, self.outbox, self.floors, self.trusted, self.store, self.server, self.blobs),
            forget=lambda digest: None,
            on_activated=self.activated.append,
            started=self.started,
        )

    @property
    def served(self) -> Slot:
        active = self.server.active
        return Slot(bundle=active.bundle, weights=active.weights, cohort=active.cohort, version=active.version)

    def settle(self) -> None:
        """Work until there is nothing left to do."""
        self.updater.recover()
        while self.updater.run_once():
            pass

    def receive(self, payload: bytes) -> None:
        self.updater.on_release_map(payload)
        self.settle()

    def events(self) -> list[EventBody]:
        """Every event in the outbox, in order of sequence."""
        self.outbox.resend_all()
        found = [
            decode(Event, data, cap_bytes=EVENT_CAP_BYTES) for _, data in self.outbox.due(float(10**12), limit=10**6)
        ]
        return [event.body for event in sorted(found, key=lambda event: event.sequence)]

    def steps(self) -> list[str]:
        return [body.step for body in self.events() if isinstance(body, UpdateLifecycleEvent)]

    def refusals(self) -> list[tuple[str | None, str | None]]:
        return [
            (body.reason, body.map_digest)
            for body in self.events()
            if isinstance(body, UpdateLifecycleEvent) and body.step == "refused"
        ]

    def close(self) -> None:
        self.updater.stop(5.0)
        self.database.close()


def provisioned_floors(maps: FleetMaps) -> ProvisionedFloors:
    versions = {role: getattr(maps.versions, role) for role in maps.versions.__slots__}
    return ProvisionedFloors(**versions, created_s=maps.now_s, map_digest=sha256_hex(maps.payload()))


def maps_of(bundle: Bundle) -> FleetMaps:
    """Release 1 of a fleet that serves ``bundle``: the root cohort with the bundle's own weights."""
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    files["manifest.json"] = (bundle.path / "manifest.json").read_bytes()
    maps = FleetMaps(bundle=bundle.digest, bundle_files=files)
    maps.set_weights("root", files["weights.safetensors"], 1)
    maps.files()
    return maps

"""The model that serves, where it comes from, and what feeds it."""

from dataclasses import dataclass
from pathlib import Path

from edge_agent.config import AgentSettings
from edge_agent.link.database import Database
from edge_agent.link.settings import TimeJudge
from edge_agent.model.bundle import load_bundle
from edge_agent.ota.floors import Floors
from edge_agent.ota.startup import confirm_start, startup
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.runtime.parts import first_pass_of_this_start, make_sink, make_source
from edge_agent.runtime.pipeline import Pipeline
from edge_agent.runtime.provisioned import provisioned_floors, provisioned_root
from edge_agent.runtime.serving_alone import MODELS_FOLDER
from edge_agent.serving.server import ModelServer


@dataclass(frozen=True, slots=True)
class Serving:
    """The bundle that serves now, and from which sample on training may read."""

    bundle: str
    bundle_dir: Path
    training_from: str | None


class ModelInService:
    """Weights store, model server, source, pipeline and sink.

    Attributes:
        root: the bytes of the root of trust.
        store: the weights store.
        started: what was chosen to serve at the start, and what was given up for it.
        server: predicts.
        sink: takes the predictions.
        pipeline: from source to sink.

    Raises:
        WronglyProvisioned: a file that the gateway was handed is absent or damaged; nothing has been written.
        ConfigError: the source or the sink cannot be made.
        DataError: the provisioned bundle cannot be used.
        StorageError: the disk refuses.
    """

    def __init__(self, settings: AgentSettings, database: Database, floors: Floors, judge: TimeJudge) -> None:
        self._gateway = settings.gateway
        self.store = WeightsStore(settings.gateway.data_dir / MODELS_FOLDER, load_bundle(settings.gateway.bundle))
        self.root = self._take_provision(floors)
        self.started = startup(self.store)
        loaded, slot = self.started.loaded, self.started.slot
        self.server = ModelServer(
            loaded.bundle,
            loaded.weights,
            slot.weights,
            slot.version,
            slot.cohort,
            embeddings=settings.monitor.label_free != "off",
        )
        confirm_start(self.store)
        self.manifest = loaded.bundle.manifest
        first_pass = first_pass_of_this_start(database)
        source = make_source(settings.source, self.manifest, self._gateway.id, first_pass=first_pass, judge=judge)
        self.sink = make_sink(settings, judge=judge)
        self.pipeline = Pipeline(source, self.server, self.sink)

    def serving(self, training_from: str | None) -> Serving:
        """What a local round works on now."""
        active = self.server.active
        bundle = self.store.bundle(active.bundle)
        folder = bundle.path if bundle is not None else self._gateway.bundle
        return Serving(active.bundle, folder, training_from)

    def _take_provision(self, floors: Floors) -> bytes:
        """Before anything is written: a gateway that was handed wrong files has not begun to serve."""
        root = provisioned_root(self._gateway.root)
        if self.store.is_virgin and not floors.initialised:
            floors.provision(provisioned_floors(self._gateway.floors), root)
        return root

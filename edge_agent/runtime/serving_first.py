"""What predicts, up and serving before anything else of the agent is loaded."""

from edge_agent.config import AgentSettings
from edge_agent.link.durable import make_directory
from edge_agent.link.outbox import Outbox
from edge_agent.link.settings import TimeJudge
from edge_agent.ota.floors import Floors
from edge_agent.runtime.error_reports import ErrorReports
from edge_agent.runtime.instance import InstanceLock
from edge_agent.runtime.model_in_service import ModelInService
from edge_agent.runtime.storage import AgentStorage

STOP_S = 1.5


class ServingFirst:
    """Data folder, databases and model; source, pipeline and sink run from the moment it is made.

    What is served until the recorder runs waits for it, as much as its queue holds. Whoever cannot make the rest of an
    agent calls :meth:`end`.

    Raises:
        WronglyProvisioned: a file that it was handed is absent or damaged; nothing has been served.
        ConfigError: a setting or file is wrong, or another agent runs on the same data folder.
        DataError: the provisioned bundle cannot be used.
        StorageError: the data folder cannot be used.
    """

    def __init__(self, settings: AgentSettings) -> None:
        data = settings.gateway.data_dir
        make_directory(data)
        self.lock = InstanceLock(data)
        self.storage = AgentStorage(data)
        try:
            self._build(settings)
        except BaseException:
            self.storage.close()  # the next start makes anew what was found damaged meanwhile
            raise

    def end(self) -> None:
        """Serve no more, and close what is open."""
        self.model.pipeline.stop(STOP_S)
        self.model.sink.stop(STOP_S)
        self.storage.close()

    def _build(self, settings: AgentSettings) -> None:
        database, caps = self.storage.agent, settings.outbox
        self.outbox = Outbox(database, settings.gateway.id, max_bytes=caps.max_bytes, max_age_s=caps.max_age_s)
        self.errors = ErrorReports(self.outbox)
        self.floors = Floors(database)
        self.judge = TimeJudge(lambda: self.floors.last_known_time_s, self.errors.wrong_clock)
        self.model = ModelInService(settings, database, self.floors, self.judge)
        self.model.sink.start()
        self.model.pipeline.start()

"""``edge-agent run``, without what reads a command line: a gateway's service starts with it."""

import faulthandler
import gc
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from edge_agent.cli.exits import Exit
from edge_agent.config import AgentSettings, load_settings
from edge_agent.errors import StorageError
from edge_agent.link.interrupt import quiet_while_loading, stop_on_signals
from edge_agent.link.log_lines import configure_logs

if TYPE_CHECKING:
    from edge_agent.runtime.agent import Agent
    from edge_agent.runtime.serving_first import ServingFirst


def serve(config: Path) -> Exit:
    """Serve until SIGTERM, with all parts or, where the disk or the root of trust is not usable, the model alone.

    Raises:
        ConfigError: a setting or file is wrong.
        DataError: the provisioned bundle cannot be used.
        StorageError: the disk refuses.
    """
    signal.signal(signal.SIGTERM, _leave)  # until something is served, which is to be recorded
    gc.disable()  # loading makes nothing but what stays: looking it through took a tenth of the start (measured)
    with quiet_while_loading():
        from edge_agent.runtime.provisioned import WronglyProvisioned, is_root_usable
        from edge_agent.runtime.serving_alone import has_served, is_usable, serve_alone
        from edge_agent.runtime.serving_first import ServingFirst

    settings = load_settings(config)
    configure_logs(settings.log.level)
    faulthandler.enable()  # a watchdog's SIGABRT writes every thread's stack to the log
    data_dir, root = settings.gateway.data_dir, settings.gateway.root
    stopping = threading.Event()
    try:
        first = ServingFirst(settings)
        stop_on_signals(stopping)
        agent = _rest_of(settings, first, stopping)
    except StorageError as error:
        if stopping.is_set():
            return Exit.OK
        return _alone(serve_alone(settings, error, mended=lambda: is_usable(data_dir)))
    except WronglyProvisioned as error:
        if not has_served(data_dir):
            raise  # nobody relies on it yet, and whoever installs it is there
        return _alone(serve_alone(settings, error, mended=lambda: is_root_usable(root)))
    return Exit.PART_DIED if agent.run() else Exit.OK


def _rest_of(settings: AgentSettings, first: "ServingFirst", stopping: threading.Event) -> "Agent":
    """Everything but what serves, which is loaded while that does: half of the start."""
    try:
        with quiet_while_loading():
            from edge_agent.runtime.agent import Agent

        return Agent(settings, first, stopping)
    except BaseException:
        first.end()
        raise


def _alone(mended: bool) -> Exit:
    """Once the fault is mended with the exit code of storage: the service starts the whole agent."""
    return Exit.STORAGE if mended else Exit.OK


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(Exit.OK)

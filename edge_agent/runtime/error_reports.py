"""What goes wrong on the gateway, told to the bridge."""

import structlog

from edge_agent.errors import StorageError
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.wire.messages import ErrorEvent

PROBLEM_CHARS = 2000
_log = structlog.get_logger(__name__)


class ErrorReports:
    """Error events, which never raise: whoever reports has trouble enough."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._clock_reported = False

    def tell(self, place: str, problem: str, hint: str) -> None:
        """Report a problem, where it arose, and the way out."""
        try:
            self._outbox.put(ErrorEvent(place=place, problem=problem[:PROBLEM_CHARS], hint=hint), Priority.LIFECYCLE)
        except StorageError as error:
            _log.error("error_not_reported", place=place, problem=problem, storage=str(error))

    def wrong_clock(self, problem: str) -> None:
        """Four connections say it at every attempt: reported once a start."""
        if not self._clock_reported:
            self._clock_reported = True
            self.tell("clock", problem, "set the gateway's clock")

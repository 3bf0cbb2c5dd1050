"""Flower's training messages, each with the weights of its client's cohort."""

from collections.abc import Iterable, Mapping, Sequence, Set

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from server_bridge.cohorts.cohorter import ClientId
from server_bridge.cohorts.membership import CohortId, CohortRegistry
from server_bridge.flower.records import COHORT_KEY, RELIABILITY_KEY, cohort_number, to_record


class Addressing:
    """How messages are addressed.

    Args:
        registry: who is where, and the weights.
        arrays_key: the record with the weights.
        config_key: the record with the settings.
        numbered: whether clients are told a cohort's number instead of its name.
    """

    def __init__(self, registry: CohortRegistry, arrays_key: str, config_key: str, *, numbered: bool) -> None:
        self._registry = registry
        self._arrays_key = arrays_key
        self._config_key = config_key
        self.numbered = numbered

    def address(self, messages: Iterable[Message], starts: Mapping[ClientId, CohortId] | None = None) -> None:
        """Put each client's cohort and its weights into its message; cohorts share one record.

        Args:
            messages: changed.
            starts: clients that are sent another cohort's weights, under that one's name.
        """
        records: dict[CohortId, ArrayRecord] = {}
        for message in messages:
            client = message.metadata.dst_node_id
            cohort = (starts or {}).get(client) or self._registry.cohort_of(client)
            if cohort not in records:
                records[cohort] = to_record(self._registry.params(cohort))
            config = ConfigRecord(dict(message.content.config_records[self._config_key]))
            config[COHORT_KEY] = cohort_number(cohort) if self.numbered else cohort
            message.content = RecordDict({self._arrays_key: records[cohort], self._config_key: config})

    def ask_reliability(self, messages: Sequence[Message], clients: Set[ClientId]) -> None:
        """Ask clients for the agreement of two halves of their data; it costs them a second round."""
        for message in messages:
            if message.metadata.dst_node_id in clients:
                message.content.config_records[self._config_key][RELIABILITY_KEY] = True

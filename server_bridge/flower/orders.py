"""From a Flower message to an order for a gateway."""

import hashlib
from dataclasses import dataclass
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType

from edge_agent.drift.label_shift import LABEL_SHIFT_KEY
from edge_agent.errors import ConfigError, DataError
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.codec import Scalar, encode
from edge_agent.wire.errors import WireError
from edge_agent.wire.messages import Evaluate, Train
from edge_agent.wire.roles import only
from edge_agent.wire.tensors import Weights, check_weights, encode_weights
from server_bridge.cohorts.membership import ROOT
from server_bridge.fleet.transport import FleetTransport, Gateway, Order
from server_bridge.flower.records import COHORT_KEY, ROUND_KEY, cohort_name, to_scalars, to_weights
from server_bridge.flower.settings import GridSettings


@dataclass(frozen=True, slots=True)
class Assignment:
    """A message on its way: the order that it became, and the weights that it carries."""

    message: Message
    gateway: Gateway
    order: Order
    server_round: int
    cohort: str
    base: Weights
    base_digest: str


class OrderBook:
    """Turns the messages of one exchange into orders; equal weights are published once.

    Args:
        transport: where weights are published.
        settings: the adaptation's orders.
    """

    def __init__(self, transport: FleetTransport, settings: GridSettings) -> None:
        self._transport = transport
        self._settings = settings
        self._published: dict[int, tuple[ArrayRecord, Weights, BlobReference]] = {}

    def assign(self, message: Message, gateway: Gateway, duration_s: float) -> Assignment:
        """The order for one message.

        Raises:
            ConfigError: neither train nor evaluate, or a config value that a command cannot carry.
            DataError: the weights do not fit the bundle.
        """
        record, config = _contents(message)
        weights, reference = self._publish(record)
        server_round = int(cast(int, config.get(ROUND_KEY, 0)))
        cohort = cohort_name(config.get(COHORT_KEY, ROOT))
        action = self._action(message, gateway, server_round, cohort, reference, config)
        return Assignment(
            message=message,
            gateway=gateway,
            order=Order(gateway.id, self._command_id(action, gateway.id, server_round), action, duration_s),
            server_round=server_round,
            cohort=cohort,
            base=weights,
            base_digest=reference.digest,
        )

    def _action(
        self,
        message: Message,
        gateway: Gateway,
        server_round: int,
        cohort: str,
        reference: BlobReference,
        config: dict[str, Scalar],
    ) -> Train | Evaluate:
        settings = self._settings
        kind = message.metadata.message_type
        if kind == MessageType.EVALUATE:
            return Evaluate(
                bundle=settings.bundle,
                weights=reference,
                since_sample=settings.since_sample,
                max_samples=settings.evaluate_max_samples,
                config=config,
            )
        if kind != MessageType.TRAIN:
            raise ConfigError(f"message type {kind!r} has no command", "gateways take train and evaluate")
        return Train(
            adaptation=settings.adaptation,
            round=server_round,
            bundle=settings.bundle,
            base=reference,
            cohort=cohort,
            training_graph=settings.graph_of(gateway.id),
            learning_rate=settings.learning_rate,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            min_samples=settings.min_samples,
            max_samples=settings.max_samples,
            seed=local_seed(settings.seed, server_round, gateway.id),
            coding=settings.coding,
            schedule=settings.schedule,
            learning_rate_min=settings.learning_rate_min,
            send_worse=settings.send_worse,
            scalars=dict(settings.scalars),
            config={**config, LABEL_SHIFT_KEY: True} if settings.label_shift else config,
        )

    def _publish(self, record: ArrayRecord) -> tuple[Weights, BlobReference]:
        known = self._published.get(id(record))
        if known is None:
            weights = to_weights(record)
            weights |= only(self._settings.personal, weights.keys())
            try:
                check_weights(weights, self._settings.specs)
            except WireError as error:
                raise DataError(f"the strategy sends weights that do not fit the bundle: {error.problem}") from error
            reference = self._transport.publish_blob(encode_weights(weights))
            known = (record, weights, reference)  # the record is kept so that its id stays its own
            self._published[id(record)] = known
        return known[1], known[2]

    def _command_id(self, action: Train | Evaluate, gateway: str, server_round: int) -> str:
        """The same for the same order after a restart of the bridge, another for any other order."""
        content = hashlib.sha256(encode(action)).hexdigest()[:8]
        return f"{self._settings.adaptation}-{server_round}-{gateway}-{action.kind}-{content}"


def local_seed(seed: int, server_round: int, gateway: str) -> int:
    """A gateway's seed for a round, below 2^53."""
    digest = hashlib.sha256(f"{seed}/{server_round}/{gateway}".encode()).digest()
    return int.from_bytes(digest[:8]) >> 11


def _contents(message: Message) -> tuple[ArrayRecord, dict[str, Scalar]]:
    arrays = list(message.content.array_records.values())
    configs: list[ConfigRecord] = list(message.content.config_records.values())
    if len(arrays) != 1 or len(configs) > 1:
        raise ConfigError(f"a message has {len(arrays)} array records and {len(configs)} configs", "send one of each")
    return arrays[0], to_scalars(configs[0]) if configs else {}

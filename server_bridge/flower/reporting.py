"""A Flower client's side of CLMA, under the names of the reference package."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from edge_agent.drift import detectors
from edge_agent.drift.detectors import DetectorState, DriftDetector, LossThresholdDetector
from server_bridge.flower.records import ARRAYS_KEY, COHORT_KEY, CONFIG_KEY, METRICS_KEY, MetricValue


class DriftReporter:
    """Algorithm 2 for a ClientApp, which is entered afresh each round: its state lives in the context.

    Args:
        context: the client's; the detector's state is kept in its ``state``.
        detector_factory: makes the detector that the state is loaded into.
    """

    def __init__(self, context: Context, detector_factory: Callable[[], DriftDetector] = LossThresholdDetector) -> None:
        self.context = context
        self._reporter = detectors.DriftReporter(_States(context.state), detector_factory)

    @property
    def detector(self) -> DriftDetector:
        """The rule, with what it remembers."""
        return self._reporter.detector

    def observe(self, loss: float) -> bool:
        """Whether this round's loss is flagged; the state is kept."""
        return self._reporter.observe(loss)

    def reset(self) -> None:
        """Forget the history, and keep that."""
        self._reporter.reset()

    def build_reply(
        self,
        msg: Message,
        arrays: ArrayRecord,
        loss: float,
        num_examples: int,
        extra_metrics: Mapping[str, float] | None = None,
    ) -> Message:
        """The reply to a training message: weights, and the metrics that CLMA reads.

        Args:
            msg: what is replied to.
            arrays: the trained weights.
            loss: this round's.
            num_examples: the weight in averages.
            extra_metrics: more metrics; they overrule ours.
        """
        metrics: dict[str, MetricValue] = {**self._reporter.metrics(float(loss), int(num_examples))}
        metrics.update(extra_metrics or {})
        return Message(RecordDict({ARRAYS_KEY: arrays, METRICS_KEY: MetricRecord(metrics)}), reply_to=msg)


def cohort_id(msg: Message, config_key: str = CONFIG_KEY) -> int | str:
    """The cohort that a message's weights are of: a number, or a name where the server gives names."""
    value = msg.content.config_records[config_key][COHORT_KEY]
    return value if isinstance(value, int) else str(value)


class _States(MutableMapping[str, DetectorState]):
    """Detector states in a Flower record."""

    def __init__(self, record: RecordDict) -> None:
        self._record = record

    def __getitem__(self, key: str) -> DetectorState:
        return {
            name: float(value)
            for name, value in self._record.config_records[key].items()
            if isinstance(value, int | float)
        }

    def __setitem__(self, key: str, state: DetectorState) -> None:
        self._record[key] = ConfigRecord({**state})

    def __delitem__(self, key: str) -> None:
        del self._record[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._record.config_records)

    def __len__(self) -> int:
        return len(self._record.config_records)

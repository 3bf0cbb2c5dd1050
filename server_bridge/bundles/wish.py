"""What an operator wants of false alarms, and what that is a batch of one monitor."""

from dataclasses import dataclass, replace

from edge_agent.errors import ConfigError
from server_bridge.bundles.rates import Rate, said_of_seconds

DEFAULT_RATE = 1e-3
"""False alarms a batch of the whole bundle where nothing is asked for."""
SHARE = 0.5
"""Of the bundle's false alarms: half are the labelled monitor's, half the label-free one's."""


@dataclass(frozen=True)
class Wish:
    """How many false alarms a bundle may give on a stream like its reference.

    Args:
        false_alarms: of the whole bundle; None: nothing was asked for, so `DEFAULT_RATE`, or the lowest that the
            reference supports.
        stream: samples that a gateway serves; None: by the data's times, if they have any.
        lowest: take the lowest rate that the reference supports, rather than refuse the one asked for.
    """

    false_alarms: Rate | None = None
    stream: Rate | None = None
    lowest: bool = False

    @property
    def asked(self) -> bool:
        """Whether a rate that the reference does not support is refused."""
        return self.false_alarms is not None and not self.lowest

    def with_stream(self, by_times: Rate | None) -> "Wish":
        """The same with the data's own rate where the operator gave none."""
        return self if self.stream is not None else replace(self, stream=by_times)

    def of_one(self, batch_size: int) -> float:
        """False alarms a batch of one monitor.

        Raises:
            ConfigError: a rate in time, and no rate of the stream; or as many alarms as batches.
        """
        if self.false_alarms is None:
            return DEFAULT_RATE * SHARE
        rate = self.false_alarms.per_unit
        if self.false_alarms.unit == "second":
            rate /= self._batches_a_second(batch_size)
        if not 0 < SHARE * rate < 1:
            raise ConfigError(
                f"{self.false_alarms.words} is {rate:.3g} false alarms a batch", "ask for fewer, or for smaller batches"
            )
        return SHARE * rate

    def words(self, rate: float, batch_size: int) -> str:
        """One monitor's rate a batch, in time where the stream's rate is known."""
        in_batches = f"1 per {1 / rate:,.0f} batches"
        if self.stream is None:
            return in_batches
        return f"{said_of_seconds(rate * self.stream.per_unit / batch_size)} ({in_batches})"

    def rows_needed(self, rows: int, lowest: float, batch_size: int) -> int:
        """About how many rows like those at hand would support what is asked for, to two digits, rounded up."""
        exact = rows * lowest / self.of_one(batch_size)
        unit = 10 ** max(0, len(str(int(exact))) - 2)
        return int(-(-exact // unit) * unit)

    def _batches_a_second(self, batch_size: int) -> float:
        if self.stream is None:
            assert self.false_alarms is not None
            raise ConfigError(
                f'--false-alarms "{self.false_alarms.words}" needs the rate of the stream',
                'give --stream-rate, for example "10 per second", or an array `time` in the data',
            )
        return self.stream.per_unit / batch_size

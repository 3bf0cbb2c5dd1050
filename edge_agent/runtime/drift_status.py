"""What the gateway's drift monitors say now: the part ``drift`` of the status file, and what reads it."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from edge_agent.errors import DataError

DRIFT_KEY = "drift"
"""Of the status file."""

Level = Literal["none", "warning", "alarm"]


class _Part(BaseModel):
    """Frozen; what a newer agent adds is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null", defer_build=True)


class Changed(_Part):
    """A quantity that changed: its level in the reference, and since the change, in ``unit``; ``weight`` 0 to 1."""

    name: str
    before: float
    now: float
    unit: str = ""
    weight: float = 1.0


class MonitorStatus(_Part):
    """One monitor after its latest batch.

    Attributes:
        name: as in the bundle's manifest.
        sees: ``labelled`` samples in the order of their labels, or samples as they are ``served``.
        only_task: of a bundle with several tasks, the one whose samples it sees, the first; None: it sees all samples.
        flags: whether its alarm can raise a flag, as things stand; one that cannot only warns.
        batches: judged so far, over all weights.
        batch_size: samples a batch.
        waiting: samples that wait for a full batch.
        statistic, threshold, warning_threshold: of the latest batch; None: there was none since the last activation.
        false_alarm_rate: promised, a batch; None: nothing is promised.
        shift: what seems to have changed: loss, covariate, label, concept, activation, unknown.
        judged_time_s: of the latest sample judged, as the source gave it.
        problem: why the latest batch could not be judged; "": it was.
    """

    name: str
    sees: Literal["labelled", "served"]
    only_task: str | None = None
    level: Level = "none"
    flags: bool = True
    batches: int = 0
    batch_size: int = 0
    waiting: int = 0
    statistic: float | None = None
    threshold: float | None = None
    warning_threshold: float | None = None
    false_alarm_rate: float | None = None
    shift: str = "unknown"
    attributions: list[Changed] = []
    judged_time_s: float | None = None
    problem: str = ""


class LabelStatus(_Part):
    """On how many labels the verdict rests.

    Attributes:
        labelled: of the latest ``served`` samples, how many have their label.
        share: the same as a share; None: nothing was served.
        delay_median_s, delay_p90_s: from serving to label, by the running clock; None: not known.
        biased: whether the labelled samples differ from the others; None: that cannot be told.
        fresh: whether the labels come often and soon enough for the loss to decide.
        says: the same in words.
    """

    labelled: int = 0
    served: int = 0
    share: float | None = None
    delay_median_s: float | None = None
    delay_p90_s: float | None = None
    biased: bool | None = None
    fresh: bool = False
    says: str = ""


class AccuracyStatus(_Part):
    """The accuracy estimated without labels, with its 90 % interval; ``refused`` says why there is none.

    ``reference``: of the bundle's weights on their held-out data. ``rows``: samples that the estimate rests on.
    """

    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    reference: float | None = None
    rows: int = 0
    refused: str = ""


class FaultStatus(_Part):
    """A sensor taken for broken: what is wrong, and on which share of its latest readings; None: not counted."""

    feature: str
    fault: str
    share: float | None = None
    detail: str = ""


class DriftStatus(_Part):
    """The gateway's one verdict and what it rests on.

    Attributes:
        verdict: none, warning or alarm.
        why: in words.
        rule: the labelled monitor that decides; "" where there is none.
        severity: 0 to 1, how bad it is (`docs/drift.md`, Policy); 0 where the verdict is none.
        severity_of: what severity is measured by: loss, accuracy, statistic; "" where the verdict is none.
        shift: what seems to have changed.
        flags: raised so far.
        open_flag: id of the flag that no activation has answered; None: there is none.
        first_drifted_sample: of the latest flag.
        cooling: batches for which no new flag is raised.
        unjudged_batches: could not be judged since the start.
    """

    verdict: Level = "none"
    why: str = ""
    rule: str = ""
    severity: float = 0.0
    severity_of: str = ""
    shift: str = "unknown"
    flags: int = 0
    open_flag: str | None = None
    first_drifted_sample: str | None = None
    cooling: int = 0
    unjudged_batches: int = 0
    monitors: list[MonitorStatus] = []
    labels: LabelStatus = LabelStatus()
    accuracy: AccuracyStatus | None = None
    faults: list[FaultStatus] = []

    def to_document(self) -> dict[str, Any]:
        """As JSON values for the status file."""
        return self.model_dump(mode="json")

    @classmethod
    def of_status(cls, status: Mapping[str, Any]) -> Self | None:
        """From the content of the status file; None: the agent that wrote it had no monitors at work.

        Raises:
            DataError: it is no such status.
        """
        if DRIFT_KEY not in status:
            return None
        try:
            return cls.model_validate(status[DRIFT_KEY])
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise DataError(f"the status says {DRIFT_KEY}.{where}: {first['msg']}", "is it another agent's?") from None

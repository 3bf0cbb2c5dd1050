"""A drift flag and its evidence, in at most 2 kB as sent."""

from typing import Annotated, Literal

from pydantic import Field

from edge_agent.wire.codec import Count, Digest, Finite, Items, Name, Table, Text, WireModel, Word, encode
from edge_agent.wire.messages.overlay import Overlay

FLAG_CAP_BYTES = 2048
EVIDENCE_CAP_ITEMS = 64
TESTS_CAP, ATTRIBUTIONS_CAP, SAMPLES_CAP = 8, 8, 32

CUT_ORDER = ("samples", "attributions", "words", "evidence", "tests", "accuracy", "labels")
"""What gives way first where a flag would not fit: sample ids from the last, attributions from the least important,
words of refusals and bias, entries of ``evidence`` from the last, tests other than the one that flags, the estimated
accuracy, the labels. What remains fits where the names of monitor and cohort have at most 64 bytes each."""

Unit = Annotated[str, Field(max_length=64)]


class FlagTest(WireModel):
    """A monitor's latest judgement when the flag was raised; ``rows``: samples that it rests on."""

    monitor: Name
    statistic: Finite
    threshold: Finite
    warning_threshold: Finite
    rows: Count = 0


class FlagAttribution(WireModel):
    """A quantity that changed, before and now in its own unit; ``weight``: share of the statistic, 0 to 1.

    ``measure``: what ``before`` and ``now`` are: level, spread or share.
    """

    name: Name
    before: Finite
    now: Finite
    unit: Unit = ""
    weight: Finite = 1.0
    measure: Word = "level"


class FlagLabels(WireModel):
    """Of ``served`` samples old enough for it ``labelled`` have their label; delays by the running clock.

    ``bias``: how the labelled ones differ from the others; empty: they do not, as far as can be told.
    """

    served: Count = 0
    labelled: Count = 0
    delay_median_s: Finite | None = None
    delay_p90_s: Finite | None = None
    bias: Text = ""


class FlagAccuracy(WireModel):
    """Accuracy (a regression's loss) estimated without labels, its 90 % interval, and what was expected.

    ``refused``: why there is no estimate.
    """

    quantity: Word = "accuracy"
    value: Finite | None = None
    low: Finite | None = None
    high: Finite | None = None
    expected: Finite | None = None
    rows: Count = 0
    refused: Text = ""


class FlagEvent(WireModel):
    """A drift monitor fired.

    ``flag_id`` is derived from gateway, monitor epoch and firing number, so that the same
    firing always has the same id. ``trainable_samples`` counts those from
    ``first_drifted_sample`` on.
    ``severity``, 0 to 1, is measured by ``severity_by``: loss, accuracy, statistic. ``shift``: what seems to have
    changed: loss, covariate, label, concept, activation (the weights: they are worse than those before), unknown.
    ``samples``: ids of some that it was judged on, the first drifted one first. ``cut``: what was left out for size.
    ``weights`` is the release; where ``overlay`` is given, it was judged with that on it: the flag tells of the
    gateway's data, not of the release alone.
    """

    kind: Literal["flag"] = "flag"
    flag_id: Digest
    monitor: Name
    firing: Count
    bundle: Digest
    weights: Digest
    weights_version: Count
    cohort: Name
    first_drifted_sample: Name
    first_drifted_time_s: Finite
    statistic: Finite
    threshold: Finite
    evidence: Annotated[Table[Name, Finite], Field(max_length=EVIDENCE_CAP_ITEMS)] = {}
    trainable_samples: Count
    severity: Annotated[float, Field(ge=0, le=1)] | None = None
    severity_by: Word | None = None
    shift: Word | None = None
    tests: Annotated[Items[FlagTest], Field(max_length=TESTS_CAP)] = []
    attributions: Annotated[Items[FlagAttribution], Field(max_length=ATTRIBUTIONS_CAP)] = []
    samples: Annotated[Items[Name], Field(max_length=SAMPLES_CAP)] = []
    labels: FlagLabels | None = None
    accuracy: FlagAccuracy | None = None
    cut: Annotated[Items[Word], Field(max_length=len(CUT_ORDER))] = []
    overlay: Overlay | None = None


def fitted(flag: FlagEvent) -> FlagEvent:
    """The flag with as much of its evidence as :data:`FLAG_CAP_BYTES` holds, cut in :data:`CUT_ORDER`.

    Cost: an encoding for each entry that is cut.
    """
    for what in CUT_ORDER:
        while len(encode(flag)) > FLAG_CAP_BYTES:
            shorter = _without(flag, what)
            if shorter is None:
                break
            flag = shorter.model_copy(update={"cut": list(dict.fromkeys([*flag.cut, what]))})
    return flag


def _without(flag: FlagEvent, what: str) -> FlagEvent | None:
    """One entry less; None: there is nothing left of it."""
    if what == "words":
        return _without_words(flag)
    if what == "tests":
        kept = [test for test in flag.tests if test.monitor == flag.monitor]
        return flag.model_copy(update={"tests": kept}) if len(kept) < len(flag.tests) else None
    if what == "evidence":
        return flag.model_copy(update={what: dict(list(flag.evidence.items())[:-1])}) if flag.evidence else None
    entries = getattr(flag, what)
    if not entries:
        return None
    return flag.model_copy(update={what: entries[:-1] if isinstance(entries, list) else None})


def _without_words(flag: FlagEvent) -> FlagEvent | None:
    update: dict[str, WireModel] = {}
    if flag.labels is not None and len(flag.labels.bias) > len(_SOME):
        update["labels"] = flag.labels.model_copy(update={"bias": _SOME})
    if flag.accuracy is not None and len(flag.accuracy.refused) > len(_SOME):
        update["accuracy"] = flag.accuracy.model_copy(update={"refused": _SOME})
    return flag.model_copy(update=update) if update else None


_SOME = "yes"
"""Of words that were cut: that there is a bias, or a refusal."""

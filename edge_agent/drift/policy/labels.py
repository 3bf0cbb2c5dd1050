"""What the labels that come are good for: how many, how late and how selected they are."""

from dataclasses import dataclass

from edge_agent.drift.policy.verdict import Labels, PolicyParams


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """The labels of samples that the active weights served.

    Args:
        rows_since: served since a batch of labelled samples was judged last, or since the activation.
        judged: whether any batch of labelled samples was judged since the activation.
        served: so many samples are looked at.
        labelled: of them have their label.
        delay_median_s, delay_p90_s: from serving to label, by the running clock; None: not known.
        bias: how the labelled samples differ from the others; "": they do not, or nobody can tell.
    """

    rows_since: int = 0
    judged: bool = False
    served: int = 0
    labelled: int = 0
    delay_median_s: float | None = None
    delay_p90_s: float | None = None
    bias: str = ""

    @property
    def share(self) -> float | None:
        """Of the samples looked at, the labelled ones; None: there are none."""
        return self.labelled / self.served if self.served else None


def standing(params: PolicyParams, facts: LabelFacts) -> Labels:
    """What the labels are good for.

    Too few are those of a stream without a judged batch for ``label_rows`` served samples; until so many were served
    after an activation it is not known, and labels are waited for. Too late are those of which a tenth comes later than
    ``label_delay_s``.
    """
    if facts.bias:
        return Labels.BIASED
    late = facts.delay_p90_s is not None and facts.delay_p90_s > params.label_delay_s
    return Labels.SCARCE if late or facts.rows_since > params.label_rows else Labels.DECIDE


def label_words(params: PolicyParams, facts: LabelFacts) -> str:
    """The facts in words."""
    parts = [] if facts.share is None else [f"{facts.labelled} of {facts.served} ({facts.share:.0%}) labelled in time"]
    if facts.delay_median_s is not None and facts.delay_p90_s is not None:
        parts.append(f"half within {facts.delay_median_s:.3g} s, nine in ten within {facts.delay_p90_s:.3g} s")
    if facts.rows_since > params.label_rows:
        parts.append(f"no labelled batch was judged for {facts.rows_since} samples")
    elif not facts.judged:
        parts.append("no labelled batch was judged on these weights yet")
    if facts.bias:
        parts.append(f"labelling is biased: {facts.bias}")
    return "; ".join(parts) or "labels come"

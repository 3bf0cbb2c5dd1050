"""A drift flag and its evidence in words."""

from collections.abc import Iterator

from edge_agent.wire.messages import FlagAccuracy, FlagAttribution, FlagEvent, FlagLabels
from server_bridge.store.flags import StoredFlag

ATTRIBUTIONS_SAID = 4


def flag_words(flag: FlagEvent) -> str:
    """What fired, how bad it is, what changed, and on how many labels that rests."""
    return "; ".join(_parts(flag))


def flag_line(stored: StoredFlag) -> str:
    """The same with whose it is and what became of it."""
    return f"{stored.gateway}: {stored.status}: {flag_words(stored.event)}"


def _parts(flag: FlagEvent) -> Iterator[str]:
    yield f"{flag.monitor} {flag.statistic:.4g} over {flag.threshold:.4g}, since sample {flag.first_drifted_sample}"
    if flag.overlay is not None:
        yield f"with an overlay of {flag.overlay.batches} batches on the release"
    if flag.severity is not None:
        by = f" by {flag.severity_by}" if flag.severity_by else ""
        yield f"severity {flag.severity:.2f}{by}"
    if flag.shift not in (None, "unknown"):
        yield "worse since the activation" if flag.shift == "activation" else f"{flag.shift} shift"
    if flag.attributions:
        yield ", ".join(_attribution(one) for one in flag.attributions[:ATTRIBUTIONS_SAID])
    if flag.labels is not None and (flag.labels.served or flag.labels.bias):
        yield _labels(flag.labels)
    if flag.accuracy is not None:
        yield _accuracy(flag.accuracy)
    others = [f"{test.monitor} {test.statistic:.4g} of {test.threshold:.4g}" for test in flag.tests]
    if len(others) > 1:
        yield f"beside it {', '.join(others[1:])}"


def _attribution(one: FlagAttribution) -> str:
    unit = f" {one.unit}" if one.unit else ""
    measure = "" if one.measure == "level" else f" ({one.measure})"
    return f"{one.name}{measure} {one.before:.4g} -> {one.now:.4g}{unit}"


def _labels(labels: FlagLabels) -> str:
    late = "" if labels.delay_median_s is None else f", half within {labels.delay_median_s:.3g} s"
    bias = f", biased: {labels.bias}" if labels.bias else ""
    return f"{labels.labelled} of {labels.served} labelled{late}{bias}"


def _accuracy(accuracy: FlagAccuracy) -> str:
    if accuracy.value is None or accuracy.low is None or accuracy.high is None:
        return f"{accuracy.quantity} not estimated: {accuracy.refused}"
    return f"{accuracy.quantity} estimated {accuracy.value:.3f} ({accuracy.low:.3f} to {accuracy.high:.3f})"

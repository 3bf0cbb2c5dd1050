"""The fleet as a table, and what stands below it."""

import time
from collections.abc import Iterator, Mapping, Sequence

from rich.table import Column, Table

from server_bridge.store.counts import Accuracies
from server_bridge.store.view import GatewayView

DIGEST_SIGNS = 8


def fleet_table(views: Sequence[GatewayView], now_s: float) -> Table:
    """A row a gateway."""
    table = Table(
        Column("gateway", no_wrap=True),
        "online",
        "bundle",
        "cohort",
        "weights",
        "update",
        "last flag",
        "samples",
        "lag",
        "holdout",
        "dropped",
    )
    for view in views:
        table.add_row(
            view.id,
            "ignored" if view.ignored else "yes" if view.online else "no",
            "-" if view.bundle is None else view.bundle[:DIGEST_SIGNS],
            view.cohort or "-",
            _weights(view),
            view.ota_state or "-",
            "-" if view.flag_s is None else f"{view.flag}, {_age(now_s - view.flag_s)} ago",
            "-" if view.trainable_samples is None else str(view.trainable_samples),
            "-" if view.lag is None else str(view.lag),
            _holdout(view),
            str(view.dropped),
        )
    return table


def _weights(view: GatewayView) -> str:
    """The release's version; behind it that the gateway has adapted it."""
    if view.weights_version is None:
        return "-"
    return f"v{view.weights_version}{f' +{view.overlay_batches}' if view.overlay_batches else ''}"


def _holdout(view: GatewayView) -> str:
    known = view.accuracy
    if known is None:
        return "-"
    if view.regression:
        before = "" if known.loss_before is None else f"{known.loss_before:.4g} -> "
        return f"loss {before}{known.loss_now:.4g}"
    before = "" if known.before is None else f"{known.before:.0%} -> "
    return f"{before}{known.now:.0%}"


def stopped_words(views: Sequence[GatewayView]) -> str:
    """That presences are old, and how old."""
    heard = [view.presence_s for view in views if view.presence_s is not None]
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(heard))) if heard else "never"
    return f"the bridge is not running: presences are as it knew them last ({when}); start it with `server-bridge run`"


def reasons(drops: Mapping[str, int]) -> str:
    """Counts by reason."""
    return ", ".join(f"{reason} {count}" for reason, count in sorted(drops.items()))


def _age(seconds: float) -> str:
    for size_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def cohort_accuracy(views: Sequence[GatewayView]) -> Iterator[str]:
    """A line a cohort: how its gateways do on their holdout samples, under the weights before and now.

    Those that adapt by themselves tell of what they made, not of the cohort's weights, and are left out.
    """
    cohorts: dict[tuple[str, bool], list[Accuracies]] = {}
    for view in views:
        if view.cohort is None or view.accuracy is None or view.overlay_batches:
            continue
        if view.accuracy.before is not None:
            cohorts.setdefault((view.cohort, view.regression), []).append(view.accuracy)
    for (cohort, regression), known in sorted(cohorts.items()):
        if regression:
            before = sum(each.loss_before or 0.0 for each in known) / len(known)
            now = sum(each.loss_now for each in known) / len(known)
            told = f"holdout loss of {cohort}, before and now: {before:.4g} -> {now:.4g}"
        else:
            before = sum(each.before or 0.0 for each in known) / len(known)
            now = sum(each.now for each in known) / len(known)
            told = f"holdout accuracy of {cohort}, before and now: {before:.0%} -> {now:.0%}"
        yield f"{told} ({len(known)} gateways)"

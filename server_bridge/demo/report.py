"""``report.html`` and ``report.json`` of a run of the demo."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from edge_agent.link.durable import make_directory, write_file
from server_bridge.demo.charts.cohort_map import cohort_map
from server_bridge.demo.charts.comparison import comparison
from server_bridge.demo.charts.svg import FAMILY_COLOURS
from server_bridge.demo.charts.timeline import fleet_timeline, gateway_timeline
from server_bridge.demo.facts import CLMA, FEDAVG, BadRelease, DemoFacts
from server_bridge.demo.plan import TRUTHS, Family
from server_bridge.demo.summary import MB, peak_rss_mb, summarise
from server_bridge.demo.verdict import (
    POISONING_LEAST,
    STATIONARY_LOSS_MOST,
    Verdict,
    drifted_of,
    false_flags,
    mean_accuracy,
    refused,
    stationary_of,
)

HTML_NAME = "report.html"
JSON_NAME = "report.json"
TEMPLATE = "report.html.j2"


@dataclass(frozen=True, slots=True)
class Figure:
    """A key number at the head of the page."""

    value: str
    label: str
    good: bool


def write_report(directory: Path, facts: DemoFacts, verdict: Verdict) -> Path:
    """Write both files; returns the page's path.

    Raises:
        StorageError: the directory cannot be written.
    """
    make_directory(directory)
    content = json.dumps(summarise(facts, verdict), indent=2, allow_nan=False) + "\n"
    write_file(directory / JSON_NAME, content.encode())
    page = directory / HTML_NAME
    write_file(page, render_page(facts, verdict).encode())
    return page


def render_page(facts: DemoFacts, verdict: Verdict) -> str:
    """The page: one self-contained HTML text, no scripts, nothing fetched."""
    environment = Environment(
        loader=PackageLoader("server_bridge.demo", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    arm = facts.arms[CLMA]
    return environment.get_template(TEMPLATE).render(
        facts=facts,
        verdict=verdict,
        figures=key_figures(facts),
        fleet_chart=Markup(fleet_timeline(facts)),
        gateways=[
            (gateway, Markup(gateway_timeline(facts, gateway)), caption(gateway.family)) for gateway in arm.gateways
        ],
        cohort_chart=Markup(cohort_map(arm)),
        averaging=averaging(facts),
        comparison_chart=Markup(comparison(facts)),
        colours=FAMILY_COLOURS,
        refusals=[(bad, reasons(bad)) for bad in facts.bad_releases],
        rss_mb=peak_rss_mb(facts),
        megabyte=MB,
    )


def caption(family: Family) -> str:
    """What happened to the gateways of a family, in a few words."""
    return TRUTHS[family].rpartition(", ")[2]


def averaging(facts: DemoFacts) -> str:
    """What plain averaging did in this run, in a sentence."""
    lost = lost_to_averaging(facts)
    if lost is None:
        return "The FedAvg arm did not run."
    if lost >= POISONING_LEAST:
        return "Averaging everybody mixes two opposite repairs, and drags along gateways that had no problem."
    return (
        "Averaging everybody gives all gateways one model. The untouched ones hardly lose by it here: where few "
        "gateways are remounted there is little to be dragged along by."
    )


def lost_to_averaging(facts: DemoFacts) -> float | None:
    """How much accuracy the untouched gateways end with less under plain averaging; ``None`` without that arm."""
    if FEDAVG not in facts.arms:
        return None
    ours, theirs = (mean_accuracy(g.final for g in stationary_of(facts.arms[arm])) for arm in (CLMA, FEDAVG))
    return ours - theirs


def reasons(bad: BadRelease) -> str:
    """The gateways' reasons for refusing a map, with their counts."""
    counts: dict[str, int] = {}
    for refusal in bad.refusals:
        counts[refusal.reason] = counts.get(refusal.reason, 0) + 1
    return ", ".join(f"{reason} ({count})" for reason, count in sorted(counts.items())) or "no gateway reported it"


def key_figures(facts: DemoFacts) -> list[Figure]:
    """The numbers that tell the story at a glance."""
    arm = facts.arms[CLMA]
    drifted, stationary = drifted_of(arm), stationary_of(arm)
    waits = [g.flagged_s - g.remount_s for g in drifted if g.flagged_s is not None]
    wrong = false_flags(arm)
    expected = 2 * len(arm.gateways)
    before, low, final = (mean_accuracy(getattr(g, at) for g in drifted) for at in ("before", "drifted", "final"))
    untouched, fleet = (mean_accuracy(getattr(g, at) for g in stationary) for at in ("before", "final"))
    flagged = f"drifts flagged, {median(waits):.1f} s after the remount" if waits else "drifts flagged"
    figures = [
        Figure(f"{len(waits)}/{len(drifted)}", flagged, len(waits) == len(drifted)),
        Figure(str(len(wrong)), "false flags", not wrong),
        Figure(f"{low:.0%} → {final:.0%}", f"remounted gateways, repaired (before: {before:.0%})", final > low),
    ]
    lost = lost_to_averaging(facts)
    if lost is not None:
        unharmed = fleet >= untouched - STATIONARY_LOSS_MOST
        label = f"untouched gateways{', unharmed' if unharmed else ''}; plain averaging leaves {fleet - lost:.0%}"
        figures.append(Figure(f"{fleet:.0%}", label, unharmed))
    figures.append(Figure(f"{refused(facts)}/{expected}", "hostile releases refused", refused(facts) == expected))
    return figures

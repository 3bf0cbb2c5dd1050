"""Who was in which cohort, round by round, as an SVG picture."""

import colorsys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from server_bridge.cli.cohort_words import EMPTIED, IGNORED
from server_bridge.cohorts.membership import ROOT
from server_bridge.demo.charts.svg import GRID_COLOUR, INK, MUTED, Drawing
from server_bridge.store.lineage import CohortMove

ROW = 20.0
TOP = 56.0
MARGIN = 16.0
SIGN = 7.0
WIDEST_ROUND, NARROWEST_ROUND, ROUNDS_WIDTH = 34.0, 5.0, 1000.0
LEGEND = 150.0
ROOT_COLOUR = "#b9bec9"
GOLDEN_TURN = 0.618034


@dataclass(frozen=True, slots=True)
class Column:
    """A committed round.

    Attributes:
        cohorts: gateway to cohort after it.
        replied: whose update counted.
        status: of its adaptation.
    """

    adaptation: str
    round: int
    cohorts: Mapping[str, str]
    replied: Set[str]
    status: str


def cohort_chart(
    rounds: Sequence[Column],
    moves: Sequence[CohortMove],
    ignored: Set[str] = frozenset(),
    now: Mapping[str, str] | None = None,
) -> str:
    """A row a gateway, a column a round, a colour a cohort; moves are ringed, and say why when pointed at.

    Args:
        rounds: at least one, in their order.
        moves: of the same bundle.
        ignored: gateways that the bridge does not listen to.
        now: gateway to cohort, where that is not as the last round left it.
    """
    last = rounds[-1].cohorts
    gateways = sorted({g for column in rounds for g in column.cohorts}, key=lambda g: (_age(last.get(g, "")), g))
    cohorts = sorted({cohort for column in rounds for cohort in column.cohorts.values()}, key=_age)
    colours = {cohort: _colour(number) for number, cohort in enumerate(c for c in cohorts if c != ROOT)}
    colours[ROOT] = ROOT_COLOUR
    labels = {gateway: f"{gateway} ({IGNORED})" if gateway in ignored else gateway for gateway in gateways}
    left = MARGIN + SIGN * max((len(label) for label in labels.values()), default=0) + 10
    step = min(WIDEST_ROUND, max(NARROWEST_ROUND, ROUNDS_WIDTH / len(rounds)))
    height = TOP + ROW * max(len(gateways), len(cohorts)) + MARGIN
    picture = Drawing(left + step * len(rounds) + LEGEND, height, "Cohort of every gateway after every round")
    picture.rect(0, 0, picture.width, height, "#ffffff")
    _heads(picture, rounds, left, step, height)
    for place, gateway in enumerate(gateways):
        picture.text(left - 8, TOP + ROW * place + ROW / 2 + 4, labels[gateway], text_anchor="end", fill=INK)
        _row(picture, gateway, rounds, moves, colours, left, step, TOP + ROW * place)
    _legend(picture, cohorts, last if now is None else now, colours, left + step * len(rounds) + 14)
    return picture.render().replace("<svg ", '<svg font-family="system-ui, sans-serif" ', 1) + "\n"


def _heads(picture: Drawing, rounds: Sequence[Column], left: float, step: float, height: float) -> None:
    picture.text(
        left, 16, "cohort after each round; ringed: moved in it; pale: no update in it", fill=INK, font_size=12
    )
    every = max(1, round(18 / step))
    for place, column in enumerate(rounds):
        x = left + step * place
        if place == 0 or rounds[place - 1].adaptation != column.adaptation:
            picture.line(x - 1, 24, x - 1, height - MARGIN, GRID_COLOUR)
            ended = "" if column.status != "failed" else ", not released"
            picture.text(x + 2, 34, f"{column.adaptation}{ended}")
        if (column.round - 1) % every == 0:
            picture.text(x + step / 2, TOP - 6, str(column.round), text_anchor="middle", font_size=9)


def _row(
    picture: Drawing,
    gateway: str,
    rounds: Sequence[Column],
    moves: Sequence[CohortMove],
    colours: Mapping[str, str],
    left: float,
    step: float,
    y: float,
) -> None:
    mine = {(m.adaptation, m.round): m for m in moves if m.gateway == gateway and m.reason != "newcomer"}
    for place, column in enumerate(rounds):
        cohort = column.cohorts.get(gateway)
        if cohort is None:
            continue
        x = left + step * place
        opacity = 1.0 if gateway in column.replied else 0.45
        picture.rect(x, y + 2, step - 1, ROW - 4, colours[cohort], opacity=opacity)
        move = mine.get((column.adaptation, column.round))
        said = "" if move is None else f", {move.reason} from {move.source or 'nowhere'}"
        picture.title(f"{gateway}: {cohort} after {column.adaptation}, round {column.round}{said}")
        if move is not None:
            radius = min(5.0, step / 2 - 1)
            picture.circle(x + (step - 1) / 2, y + ROW / 2, radius, "#ffffff", stroke=INK, stroke_width=1.5)


def _legend(
    picture: Drawing, cohorts: Sequence[str], members: Mapping[str, str], colours: Mapping[str, str], x: float
) -> None:
    for place, cohort in enumerate(cohorts):
        y = TOP + ROW * place
        now = sum(1 for theirs in members.values() if theirs == cohort)
        picture.rect(x, y + 4, 12, 12, colours[cohort], rx=2)
        picture.text(x + 18, y + 14, cohort, fill=INK, font_size=12)
        picture.text(x + 18 + SIGN * len(cohort) + 8, y + 14, f"{now} now" if now else EMPTIED, fill=MUTED)


def _age(cohort: str) -> tuple[bool, int, str]:
    """The root first, then by number: c2 before c10."""
    return cohort != ROOT, len(cohort), cohort


def _colour(number: int) -> str:
    red, green, blue = colorsys.hls_to_rgb((0.67 + number * GOLDEN_TURN) % 1.0, 0.46 + 0.1 * (number % 2), 0.55)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"

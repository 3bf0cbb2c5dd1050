"""Which cohort every gateway ended in, beside how it truly drifted."""

from server_bridge.demo.charts.svg import FAMILY_COLOURS, GRID_COLOUR, INK, MUTED, Drawing
from server_bridge.demo.facts import ArmFacts, GatewayFacts
from server_bridge.demo.plan import TRUTHS, Family

ROW = 27.0
GAP = 22.0
LEFT = 226.0
RIGHT = 378.0
TOP = 34.0
WIDTH = 530.0


def cohort_map(arm: ArmFacts) -> str:
    """Gateways by true family on the left, the cohorts that CLMA formed on the right."""
    left = _places([[g for g in arm.gateways if g.family is family] for family in Family])
    cohorts = sorted({gateway.cohort for gateway in arm.gateways}, key=lambda name: (name == "root", name))
    groups = [[g for g in arm.gateways if g.cohort == cohort] for cohort in cohorts]
    right = _places(groups)
    height = max(max(left.values(), default=0), max(right.values(), default=0)) + ROW
    picture = Drawing(WIDTH, height, "Gateways by how they drifted and the cohorts they ended in")
    picture.text(LEFT, 14, "how it truly drifted", text_anchor="end")
    picture.text(RIGHT, 14, "cohort found by CLMA")
    for gateway in arm.gateways:
        _ribbon(picture, gateway, left[gateway.id], right[gateway.id])
    _families(picture, arm, left)
    for cohort, members in zip(cohorts, groups, strict=True):
        _cohort(picture, cohort, members, right)
    return picture.render()


def _places(groups: list[list[GatewayFacts]]) -> dict[str, float]:
    places: dict[str, float] = {}
    y = TOP
    for group in groups:
        for gateway in group:
            places[gateway.id] = y + ROW / 2
            y += ROW
        y += GAP if group else 0
    return places


def _ribbon(picture: Drawing, gateway: GatewayFacts, y1: float, y2: float) -> None:
    middle = (LEFT + RIGHT) / 2
    curve = f"M{LEFT + 10:.1f},{y1:.1f} C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {RIGHT:.1f},{y2:.1f}"
    picture.path(curve, FAMILY_COLOURS[gateway.family], stroke_width=5, opacity=0.35)
    picture.circle(LEFT + 4, y1, 7, FAMILY_COLOURS[gateway.family])
    picture.text(LEFT - 12, y1 + 4, gateway.id, text_anchor="end", fill=INK, font_size=12)


def _families(picture: Drawing, arm: ArmFacts, places: dict[str, float]) -> None:
    for family in Family:
        rows = [places[gateway.id] for gateway in arm.gateways if gateway.family is family]
        if not rows:
            continue
        middle = (min(rows) + max(rows)) / 2
        first, _, second = TRUTHS[family].partition(", ")
        picture.text(4, middle + (0 if second else 4), first, fill=FAMILY_COLOURS[family], font_weight=600)
        if second:
            picture.text(4, middle + 15, second, fill=FAMILY_COLOURS[family])
        picture.line(158, min(rows) - 9, 158, max(rows) + 9, FAMILY_COLOURS[family], stroke_width=2)


def _cohort(picture: Drawing, cohort: str, members: list[GatewayFacts], places: dict[str, float]) -> None:
    rows = [places[gateway.id] for gateway in members]
    top, bottom = min(rows) - ROW / 2 + 3, max(rows) + ROW / 2 - 3
    picture.rect(RIGHT, top, WIDTH - RIGHT - 2, bottom - top, "#fff", stroke=GRID_COLOUR, rx=8)
    families = {gateway.family for gateway in members}
    accent = FAMILY_COLOURS[families.pop()] if len(families) == 1 else MUTED
    picture.rect(RIGHT, top, 5, bottom - top, accent, rx=2)
    versions = sorted({gateway.version for gateway in members})
    middle = (top + bottom) / 2
    picture.text(RIGHT + 18, middle, cohort, fill=INK, font_size=15, font_weight=600)
    noun = "gateway" if len(members) == 1 else "gateways"
    words = f"{len(members)} {noun}, version {', '.join(map(str, versions))}"
    picture.text(RIGHT + 18, middle + 15, words)

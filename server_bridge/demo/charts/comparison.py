"""CLMA against FedAvg: where every gateway began, fell to, and ended."""

from server_bridge.demo.charts.svg import FAMILY_COLOURS, FEDAVG_COLOUR, GRID_COLOUR, INK, MUTED, Drawing, Scale
from server_bridge.demo.facts import CLMA, FEDAVG, DemoFacts, GatewayFacts
from server_bridge.demo.plan import Family

ROW = 27.0
TOP = 46.0
LEFT = 60.0
WIDTH = 530.0
GAP = 14.0


def comparison(facts: DemoFacts) -> str:
    """A row per gateway on one accuracy axis: before, drifted, final with CLMA and with FedAvg."""
    arm = facts.arms[CLMA]
    families = [family for family in Family if any(g.family is family for g in arm.gateways)]
    height = TOP + ROW * len(arm.gateways) + GAP * len(families) + 12
    picture = Drawing(WIDTH, height, "Accuracy per gateway before, drifted and final, with CLMA and FedAvg")
    x = Scale(0, 1, LEFT, WIDTH - 24)
    _key(picture)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        picture.line(x(share), TOP - 8, x(share), height - 18, GRID_COLOUR)
        picture.text(x(share), height - 4, f"{share:.0%}", text_anchor="middle")
    averaged = {g.id: g for g in facts.arms[FEDAVG].gateways} if FEDAVG in facts.arms else {}
    y = TOP + 8
    for family in families:
        for gateway in (g for g in arm.gateways if g.family is family):
            _row(picture, gateway, averaged.get(gateway.id), x, y)
            y += ROW
        y += GAP
    return picture.render()


def _row(picture: Drawing, gateway: GatewayFacts, averaged: GatewayFacts | None, x: Scale, y: float) -> None:
    colour = FAMILY_COLOURS[gateway.family]
    before, drifted, final = gateway.before.accuracy, gateway.drifted.accuracy, gateway.final.accuracy
    other = averaged.final.accuracy if averaged else None
    picture.text(LEFT - 12, y + 4, gateway.id, text_anchor="end", fill=INK, font_size=12)
    if drifted is not None and final is not None:
        picture.line(x(drifted), y, x(final), y, colour, stroke_width=3, opacity=0.25)
    if drifted is not None and gateway.drifts:
        picture.line(x(drifted), y - 6, x(drifted), y + 6, colour, stroke_width=2.5)
        picture.title(f"{gateway.id} drifted: {drifted:.1%}")
    if before is not None:
        picture.circle(x(before), y, 6.5, "#fff", stroke=colour, stroke_width=1.6)
        picture.title(f"{gateway.id} before: {before:.1%}")
    if other is not None:
        _diamond(picture, x(other), y)
        picture.title(f"{gateway.id} final with FedAvg: {other:.1%}")
    if final is not None:
        picture.circle(x(final), y, 4.8, colour)
        picture.title(f"{gateway.id} final with CLMA: {final:.1%}")


def _diamond(picture: Drawing, x: float, y: float) -> None:
    picture.polygon([(x - 6, y), (x, y - 6), (x + 6, y), (x, y + 6)], FEDAVG_COLOUR)


def _key(picture: Drawing) -> None:
    y = 12.0
    picture.circle(LEFT + 6, y, 6.5, "#fff", stroke=MUTED, stroke_width=1.6)
    picture.text(LEFT + 18, y + 4, "before")
    picture.line(LEFT + 76, y - 6, LEFT + 76, y + 6, MUTED, stroke_width=2.5)
    picture.text(LEFT + 84, y + 4, "drifted")
    picture.circle(LEFT + 146, y, 4.8, MUTED)
    picture.text(LEFT + 156, y + 4, "final, CLMA")
    _diamond(picture, LEFT + 242, y)
    picture.text(LEFT + 254, y + 4, "final, FedAvg")

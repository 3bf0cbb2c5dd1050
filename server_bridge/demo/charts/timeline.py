"""Accuracy over time: the fleet's two halves, and a small picture per gateway."""

from statistics import fmean

from server_bridge.demo.charts.series import gateway_series, last_moment, mean_series
from server_bridge.demo.charts.svg import (
    ACTIVE_COLOUR,
    DRIFT_COLOUR,
    FAMILY_COLOURS,
    FEDAVG_COLOUR,
    GRID_COLOUR,
    INK,
    MUTED,
    ROUND_COLOUR,
    Drawing,
    Scale,
)
from server_bridge.demo.facts import CLMA, FEDAVG, ArmFacts, DemoFacts, GatewayFacts
from server_bridge.demo.plan import Family
from server_bridge.demo.verdict import drifted_of, mean_accuracy, stationary_of

LABELS = {CLMA: "CLMA", FEDAVG: "FedAvg"}
LABEL_GAP = 15.0
TICK_CHOICES_S = (5, 10, 20, 30, 60, 120)


def fleet_timeline(facts: DemoFacts) -> str:
    """Mean accuracy of remounted and of untouched gateways, CLMA beside FedAvg."""
    picture = Drawing(1080, 304, "Mean accuracy over time of remounted and untouched gateways, CLMA and FedAvg")
    for left, title, pick in (
        (46.0, "Remounted gateways", drifted_of),
        (604.0, "Untouched gateways", stationary_of),
    ):
        _half(picture, facts, left, title, {name: pick(arm) for name, arm in facts.arms.items()})
    return picture.render()


def _half(picture: Drawing, facts: DemoFacts, left: float, title: str, arms: dict[str, list[GatewayFacts]]) -> None:
    arm = facts.arms[CLMA]
    last_s = max(last_moment(each) for each in facts.arms.values())
    x, y = Scale(0, last_s, left, left + 378), Scale(0, 1, 278, 62)
    picture.text(left, 22, title, font_size=15, font_weight=600, fill=INK)
    _rounds(picture, arm, x, 62, 278)
    _grid(picture, x, y, percent=True)
    _moments(picture, arm, arms[CLMA], x, (52, 278))
    finals = {name: y(mean_accuracy(gateway.final for gateway in gateways)) for name, gateways in arms.items()}
    for name, gateways in reversed(arms.items()):
        colour = _half_colour(gateways) if name == CLMA else FEDAVG_COLOUR
        line = mean_series(gateways, last_s, shift_s=_delay(arms[CLMA], gateways))
        points = [(x(moment), y(value)) for moment, value in line]
        if name == CLMA:
            picture.polyline(points, colour, stroke_width=2.6)
        else:
            picture.polyline(points, colour, stroke_width=2.0, stroke_dasharray="5 3")
        if points:
            label = f"{LABELS[name]} {mean_accuracy(gateway.final for gateway in gateways):.0%}"
            height = _apart(name, finals) + 4
            picture.text(points[-1][0] + 6, height, label, fill=colour, font_weight=600, font_size=12)


def _apart(name: str, heights: dict[str, float]) -> float:
    """Where a label goes so that two do not overlap."""
    own = heights[name]
    for other_name, other in heights.items():
        if other_name != name and abs(own - other) < LABEL_GAP:
            upper = own < other or (own == other and name == CLMA)
            return (own + other) / 2 + (-LABEL_GAP / 2 if upper else LABEL_GAP / 2)
    return own


def _delay(first: list[GatewayFacts], second: list[GatewayFacts]) -> float:
    """By how much the first arm's second passes begin later, on average."""
    if not first or not second:
        return 0.0
    return fmean(gateway.remount_s for gateway in first) - fmean(gateway.remount_s for gateway in second)


def _half_colour(gateways: list[GatewayFacts]) -> str:
    return FAMILY_COLOURS[Family.PERMUTED if gateways and gateways[0].drifts else Family.STATIONARY]


def _moments(
    picture: Drawing, arm: ArmFacts, gateways: list[GatewayFacts], x: Scale, span: tuple[float, float]
) -> None:
    top, bottom = span
    drifts = [gateway.remount_s for gateway in gateways if gateway.drifts]
    if drifts:
        picture.rect(
            x(min(drifts)), top, max(x(max(drifts)) - x(min(drifts)), 1.5), bottom - top, DRIFT_COLOUR, opacity=0.18
        )
        picture.text(x(min(drifts)) - 4, top + 2, "remounted", fill=DRIFT_COLOUR, text_anchor="end")
    activated = [gateway.activated_s for gateway in gateways if gateway.activated_s is not None]
    if activated:
        at = min(activated)
        picture.line(x(at), top, x(at), bottom, ACTIVE_COLOUR, stroke_width=1.5)
        picture.text(x(at) + 4, top + 2, "activated", fill=ACTIVE_COLOUR)
    if arm.rounds:
        middle = (arm.rounds[0].began_s + arm.rounds[-1].ended_s) / 2
        picture.text(x(middle), top + 2, f"{len(arm.rounds)} rounds", text_anchor="middle")


def gateway_timeline(facts: DemoFacts, gateway: GatewayFacts) -> str:
    """One gateway: accuracy, remount, flags, rounds and activation; FedAvg's line beside it."""
    arm = facts.arms[CLMA]
    last_s = max(last_moment(each) for each in facts.arms.values())
    picture = Drawing(208, 132, f"Accuracy over time of {gateway.id}")
    x, y = Scale(0, last_s, 26, 202), Scale(0, 1, 112, 16)
    _rounds(picture, arm, x, 16, 112)
    _grid(picture, x, y, percent=False)
    if gateway.drifts:
        picture.line(x(gateway.remount_s), 12, x(gateway.remount_s), 112, DRIFT_COLOUR, stroke_dasharray="2 2")
        picture.title(f"sensor remounted at {gateway.remount_s:.1f} s")
    for flag in gateway.flags:
        _flag(picture, x(flag.at_s), expected=flag.expected)
        picture.title(f"{'flag' if flag.expected else 'false flag'} at {flag.at_s:.1f} s")
    if gateway.activated_s is not None:
        picture.line(x(gateway.activated_s), 12, x(gateway.activated_s), 112, ACTIVE_COLOUR, stroke_width=1.4)
        picture.title(f"{gateway.cohort} version {gateway.version} activated at {gateway.activated_s:.1f} s")
    _averaged_line(picture, facts, gateway, x, y)
    for run in gateway_series(gateway):
        points = [(x(sample.at_s), y(sample.accuracy)) for sample in run]
        picture.polyline(points, FAMILY_COLOURS[gateway.family], stroke_width=2.0)
    return picture.render()


def _averaged_line(picture: Drawing, facts: DemoFacts, gateway: GatewayFacts, x: Scale, y: Scale) -> None:
    if FEDAVG not in facts.arms:
        return
    for other in facts.arms[FEDAVG].gateways:
        if other.id != gateway.id:
            continue
        for run in gateway_series(other, shift_s=gateway.remount_s - other.remount_s):
            points = [(x(s.at_s), y(s.accuracy)) for s in run if s.at_s <= x.high]
            picture.polyline(points, FEDAVG_COLOUR, stroke_width=1.2, opacity=0.75, stroke_dasharray="3 2")


def _flag(picture: Drawing, x: float, *, expected: bool) -> None:
    fill = DRIFT_COLOUR if expected else "#000"
    picture.line(x, 4, x, 16, fill, stroke_width=1.4)
    picture.polygon([(x, 3), (x + 9, 6.5), (x, 10)], fill)


def _rounds(picture: Drawing, arm: ArmFacts, x: Scale, top: float, bottom: float) -> None:
    for each in arm.rounds:
        width = max(x(each.ended_s) - x(each.began_s) - 0.8, 0.8)
        picture.rect(x(each.began_s), top, width, bottom - top, ROUND_COLOUR)
        picture.title(f"round {each.number}: {each.replies} replies, {each.failed} failed")


def _grid(picture: Drawing, x: Scale, y: Scale, *, percent: bool) -> None:
    for share in (0.0, 0.5, 1.0):
        picture.line(x.start, y(share), x.end, y(share), GRID_COLOUR)
        words = f"{share:.0%}" if percent else f"{share:.0%}".removesuffix("%")
        picture.text(x.start - 5, y(share) + 3.5, words, text_anchor="end", font_size=11 if percent else 9)
    step = next((tick for tick in TICK_CHOICES_S if x.high / tick <= (8 if percent else 4)), TICK_CHOICES_S[-1])
    for moment in range(0, int(x.high) + 1, step):
        picture.line(x(moment), y.start, x(moment), y.start + 3, MUTED)
        words = f"{moment} s" if percent else str(moment)
        picture.text(
            x(moment), y.start + (16 if percent else 13), words, text_anchor="middle", font_size=11 if percent else 9
        )

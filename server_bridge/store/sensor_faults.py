"""What gateways say of their sensors: told as decisions are, and which faults last."""

from collections import defaultdict
from collections.abc import Iterable

from edge_agent.wire.messages import EventBody, SensorFaultEvent
from server_bridge.store.decisions import DecisionTable, Fact

SENSOR_FAULT = "sensor-fault"


def record_fault(decisions: DecisionTable, gateway: str, fault: SensorFaultEvent, now_s: float) -> None:
    """A line of the log: a fault begins, ends, or was there and is over."""
    momentary = fault.until_s is not None and fault.fault in ("time-gap", "clock-backwards")
    reason = "seen" if momentary else "begins" if fault.until_s is None else "ends"
    more = f"; {fault.untold} more were not told" if fault.untold else ""
    facts: dict[str, Fact] = {
        "gateway": gateway,
        "sensor": fault.sensor,
        "fault": fault.fault,
        "since_s": fault.since_s,
        "until_s": fault.until_s,
        "fault_id": fault.fault_id,
    }
    decisions.record(SENSOR_FAULT, reason, f"{gateway}: {fault.words()}{more}", now_s, facts=facts)


def lasting_faults(told: Iterable[tuple[str, EventBody]]) -> dict[str, list[SensorFaultEvent]]:
    """Faults that have begun and not ended, by gateway, the oldest first.

    Args:
        told: gateways and what they said, in the order in which it came.
    """
    lasting: dict[str, dict[str, SensorFaultEvent]] = defaultdict(dict)
    for gateway, body in told:
        if not isinstance(body, SensorFaultEvent):
            continue
        if body.until_s is None:
            lasting[gateway][body.fault_id] = body
        else:
            lasting[gateway].pop(body.fault_id, None)
    return {gateway: list(faults.values()) for gateway, faults in lasting.items() if faults}

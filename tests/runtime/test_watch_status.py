"""What the status file says of the monitors at work."""

import json

from edge_agent.runtime.drift_status import DriftStatus
from edge_agent.runtime.watch_status import drift_status
from edge_agent.wire.messages import SensorFaultEvent
from tests.runtime.watched import NAMES, SIZE, drawn, labelled, labels_of, served_of
from tests.runtime.watched_gateway import SHIFT, Gateway


def test_the_status_says_what_every_monitor_says(gateway: Gateway) -> None:
    status = drift_status(gateway.watch)
    assert (status.verdict, status.monitors[0].statistic, status.labels.fresh) == ("none", None, True)
    gateway.serve(10 * SIZE, label=True)
    gateway.serve(50 * SIZE, moved=SHIFT, portion=SIZE)
    status = drift_status(gateway.watch)
    assert DriftStatus.of_status({"drift": json.loads(json.dumps(status.to_document()))}) == status
    level, free = status.monitors
    assert (level.name, level.sees, level.batches, status.rule) == ("loss-level", "labelled", 10, "loss-level")
    assert (free.sees, free.level, free.flags, free.batches) == ("served", "alarm", True, 60)
    assert free.statistic is not None
    assert free.threshold is not None
    assert free.statistic > free.threshold
    assert free.attributions[0].name == NAMES[0]
    assert (status.verdict, status.flags, status.open_flag) == ("alarm", 1, gateway.flags[0].flag_id)
    assert status.severity > 0
    assert status.labels.served > 0
    assert "no labelled batch was judged for" in status.labels.says


def test_how_late_labels_come_is_known(gateway: Gateway) -> None:
    x, outputs = drawn(200, 4)
    labels = labels_of(outputs, 4)
    batch, made = served_of(gateway.bundle, 0, x, outputs)
    gateway.parts.store.add(batch, made, 0.0)
    gateway.watch.consume([], gateway.parts.active, [(batch, made)], now_s=1.0)
    rows = gateway.parts.store.label(labelled(0, labels), 0.0)
    gateway.watch.consume(rows, gateway.parts.active, now_s=11.0)
    gateway.now_s = 200.0
    gateway.serve(SIZE)
    facts = gateway.watch.standing.facts
    assert (facts.served, facts.labelled, facts.delay_median_s, facts.bias) == (128, 128, 10.0, "")


def test_sensor_faults_that_last_are_in_the_status(gateway: Gateway) -> None:
    stuck = SensorFaultEvent(fault_id="1" * 64, fault="stuck", sensor="inlet", unit="degC", since_s=7.0, value=21.5)
    (fault,) = drift_status(gateway.watch, [stuck]).faults
    assert (fault.feature, fault.fault, fault.share) == ("inlet", "stuck", None)
    assert fault.detail == "at 21.5 degC; since 7 s"

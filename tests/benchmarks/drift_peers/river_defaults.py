"""Runs in river's environment: how often its detectors alarm, all at their defaults, on streams without drift.

Input is an ``.npz`` of (streams, samples) losses by case; output is JSON: by case and detector alarms and samples, a
detector being started anew after each alarm, as river's do by themselves.
"""

import json
import sys
import time

import numpy as np
from river import drift

DETECTORS = {
    "ADWIN": drift.ADWIN,
    "PageHinkley": drift.PageHinkley,
    "KSWIN": lambda: drift.KSWIN(seed=0),
    "DDM": drift.binary.DDM,
    "HDDM_A": drift.binary.HDDMA,
    "HDDM_W": drift.binary.HDDMW,
}
BUDGET_S = 4.0


def count(make, streams):
    """Alarms and samples, of the first streams that the time allows."""
    alarms, samples, began_s = 0, 0, time.process_time()
    for stream in streams:
        detector = make()
        for value in stream:
            detector.update(value)
            alarms += detector.drift_detected
        samples += len(stream)
        if time.process_time() - began_s > BUDGET_S:
            break
    return alarms, samples


def main(source):
    """Every detector on every case; those of events see whether a loss exceeds the case's 0.9 quantile."""
    found = {}
    with np.load(source) as cases:
        for case in cases.files:
            losses = cases[case].astype(float)
            events = losses > np.quantile(losses, 0.9)
            found[case] = {}
            for name, make in DETECTORS.items():
                binary = name not in ("ADWIN", "PageHinkley", "KSWIN")
                streams = (events if binary else losses).tolist()
                found[case][name] = count(make, streams)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])

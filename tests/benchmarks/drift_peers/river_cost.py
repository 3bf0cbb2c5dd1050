"""Runs in river's environment: CPU seconds of ADWIN on each of 16 features and PageHinkley on the loss, when asked.

Each line on the input is a number of samples; the answer is the seconds for them.
"""

import random
import sys
import time

from river import drift

FEATURES = 16


def main():
    """Until the input ends."""
    each, on_loss = [drift.ADWIN() for _ in range(FEATURES)], drift.PageHinkley()
    for line in sys.stdin:
        samples = [[random.gauss(0, 1) for _ in range(FEATURES + 1)] for _ in range(int(line))]
        began_s = time.process_time()
        for *features, loss in samples:
            for detector, value in zip(each, features, strict=True):
                detector.update(value)
            on_loss.update(loss)
        print(time.process_time() - began_s, flush=True)


if __name__ == "__main__":
    main()

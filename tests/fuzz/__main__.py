"""``python -m tests.fuzz --seconds 60 --seed 0``: hostile bytes for every reader, topic and file.

The parent starts a child and reports; a child that dies, by a signal too, is a finding. Exit 1 on findings.
"""

import argparse
import json
import sys
from pathlib import Path

from tests.fuzz.parent import outcome_of
from tests.fuzz.run import child

KEEP = Path("fuzz-findings")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="targets whose name begins so")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    result = outcome_of(child, seconds=options.seconds, seed=options.seed, only=options.only, keep=KEEP)
    if isinstance(result, str):
        print(f"FOUND: {result}")
        return 1
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return _report(result, options.seed)


def _report(result: dict[str, object], seed: int) -> int:
    tallies, findings = result["tallies"], result["findings"]
    assert isinstance(tallies, dict)
    assert isinstance(findings, list)
    total = sum(tally["inputs"] for tally in tallies.values())
    for name, tally in sorted(tallies.items()):
        outcomes = ", ".join(f"{what} {count}" for what, count in sorted(tally["outcomes"].items()))
        print(f"{name:32} {tally['inputs']:9} inputs  longest {tally['longest_s'] * 1000:6.0f} ms  {outcomes}")
    first, peak = result["first_rss_bytes"], result["peak_rss_bytes"]
    assert isinstance(first, int)
    assert isinstance(peak, int)
    memory = f"memory {first >> 20} MiB at first, {peak >> 20} MiB at most"
    print(f"{total} inputs to {len(tallies)} targets, seed {seed}; {memory}")
    for found in findings:
        print(f"FOUND {found['target']}: {found['where']}, input kept in {found['input']}\n{found['story']}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

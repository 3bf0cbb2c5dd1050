"""``python -m tests.benchmarks [NAME...] [--runs N] [--save]``: run benchmarks, print ratios, keep results."""

import argparse

from tests.benchmarks import serving, training_step
from tests.benchmarks.report import save, show

BENCHMARKS = {"serving": serving, "training_step": training_step}


def main() -> None:
    """Run the named benchmarks, all by default."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--runs", type=int, default=15, help="timed rounds, interleaved (default 15)")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    for name in arguments.names or BENCHMARKS:
        benchmark = BENCHMARKS[name]
        comparisons = benchmark.run(runs=arguments.runs)
        show(benchmark.TITLE, comparisons)
        if arguments.save:
            print(f"  saved: {save(name, benchmark.TITLE, comparisons).name}")


if __name__ == "__main__":
    main()

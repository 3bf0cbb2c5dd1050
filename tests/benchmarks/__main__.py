"""``python -m tests.benchmarks [NAME...] [--runs N] [--save]``: run benchmarks, print ratios, keep results.

``python -m tests.benchmarks fleet_load`` is a load with options of its own: minutes, and no peer.
``python -m tests.benchmarks hostile`` has no peer either: accuracy lost to hostile gateways.
``python -m tests.benchmarks cohorting`` sets Algorithm 3 beside the reference package: an hour and more.
``python -m tests.benchmarks cohort_recovery`` asks which cohorter finds the true families: `--quick` is seconds.
``python -m tests.benchmarks cohort_oracle`` asks what could be told by who knows the noise exactly: three minutes.
``python -m tests.benchmarks cifar10_drift`` repeats the published experiment: an hour; `--quick` is a minute or two.
``python -m tests.benchmarks gas_drift_cohorts`` has gas sensors that age: `--quick` is seconds.
``python -m tests.benchmarks agent_loop`` has the agent beside bare onnxruntime: minutes; `--quick` is seconds.
``python -m tests.benchmarks training_step`` sets a training step beside torch's: minutes; `--quick` is seconds.
``python -m tests.benchmarks learning_quality`` fine-tunes twice, here and in torch: minutes; `--quick` is seconds.
``python -m tests.benchmarks fed_ade`` adapts to shifting streams without labels: `--quick` is seconds.
``python -m tests.benchmarks tailor`` sets task blocks beside heads and whole nets: two minutes; `--quick` is seconds.
``python -m tests.benchmarks attribution`` makes sensors drift and asks which are named: minutes.
``python -m tests.benchmarks drift_replay`` replays real recordings as `edge-agent drift replay` does: a minute or two.
``python -m tests.benchmarks false_alarms`` counts false alarms against what is promised: `--quick` is seconds.
``python -m tests.benchmarks activations`` asks whether new weights are flagged that change nothing: minutes.
``python -m tests.benchmarks label_free_level`` does the same for the monitor without labels: `--quick` is seconds.
``python -m tests.benchmarks estimated_accuracy`` sets accuracies without labels beside the true ones: minutes.
``python -m tests.benchmarks sensor_faults`` puts faults and drifts into recorded sensors: `--quick` is a minute.
``python -m tests.benchmarks labelling`` asks whether labelling that leans is found: a minute; `--quick` is seconds.
``python -m tests.benchmarks drift_monitors`` has drifts told by ours and by three libraries: an hour and more.
``python -m tests.benchmarks recurring`` lets drifts come back, FedDrift's way: `--quick` is seconds.
"""

import argparse
import importlib
import sys

from tests.benchmarks import head_training, serving
from tests.benchmarks.report import save, show

BENCHMARKS = {"serving": serving, "head_training": head_training}
WITH_OPTIONS = (
    "activations",
    "agent_loop",
    "attribution",
    "cifar10_drift",
    "cohort_oracle",
    "cohort_recovery",
    "cohorting",
    "drift_monitors",
    "drift_replay",
    "estimated_accuracy",
    "false_alarms",
    "fed_ade",
    "fleet_load",
    "gas_drift_cohorts",
    "hostile",
    "label_free_level",
    "labelling",
    "learning_quality",
    "recurring",
    "sensor_faults",
    "tailor",
    "training_step",
)


def main() -> None:
    """Run the named benchmarks; by default all but loads."""
    if sys.argv[1:2] and sys.argv[1] in WITH_OPTIONS:
        importlib.import_module(f"tests.benchmarks.{sys.argv[1]}").main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--runs", type=int, default=15, help="timed rounds, interleaved (default 15)")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join((*BENCHMARKS, *WITH_OPTIONS))}")
    for name in arguments.names or BENCHMARKS:
        benchmark = BENCHMARKS[name]
        comparisons = benchmark.run(runs=arguments.runs)
        show(benchmark.TITLE, comparisons)
        if arguments.save:
            print(f"  saved: {save(name, benchmark.TITLE, comparisons).name}")


if __name__ == "__main__":
    main()

"""``python -m tests.benchmarks.cohorting_memory FORM CLIENTS PARAMETERS [FOLDER]``: one cohorting, its peak of memory.

In a process of its own, since a peak is a process's. With a folder the clients' weights are files in it, mapped.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.cohorter import CLMACohorter
from tests.benchmarks.cohorting_inputs import Form, fleet, rows

MIB = 1 << 20


def main() -> None:
    """Print what was measured as JSON."""
    form, clients, parameters = cast(Form, sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    CLMACohorter().cohort(range(3), *fleet(form, 3, 4096))  # what libraries keep once they have run
    if len(sys.argv) > 4:
        matrix, reference = _mapped(Path(sys.argv[4]), form, clients, parameters)
    else:
        matrix, reference = fleet(form, clients, parameters)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    before = _resident("VmRSS")
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    result = CLMACohorter().cohort(range(clients), matrix, reference)
    print(
        json.dumps(
            {
                "cohorts": result.num_cohorts,
                "cpu_s": time.process_time() - began_cpu_s,
                "wall_s": time.monotonic() - began_s,
                "input_mib": (clients + 1) * parameters * 4 / MIB,
                "more_than_input_mib": (_resident("VmHWM") - before) / MIB,
                "process_peak_mib": _resident("VmHWM") / MIB,
            }
        )
    )


def _mapped(folder: Path, form: Form, clients: int, parameters: int) -> tuple[NDArray[Any], NDArray[Any]]:
    path = folder / "clients.npy"
    drawn = rows(form, clients, parameters)
    reference = next(drawn)
    matrix = np.lib.format.open_memmap(path, "w+", np.float32, (clients, parameters))
    for row, weights in zip(matrix, drawn, strict=True):
        row[:] = weights
        matrix.flush()
    del matrix, row
    return np.load(path, mmap_mode="r"), reference


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


if __name__ == "__main__":
    main()

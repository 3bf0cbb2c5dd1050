"""What a bundle's gateway needs to judge batches without labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.label_free import LABEL_FREE_FILE, calibrate_label_free
from edge_agent.wire.manifest import Manifest
from server_bridge.bundles.calibrate import Run, outputs_on
from server_bridge.bundles.data import LabelledData


def label_free_file(manifest: Manifest, run: Run, held_out: LabelledData, *, seed: int) -> dict[str, bytes]:
    """The calibration without labels as a file of the bundle, by its name.

    Args:
        run: the model under the bundle's weights.
        held_out: the calibration data.
        seed: of the reference shifts.
    """

    def outputs(role: str) -> NDArray[Any] | None:
        named = next((output.name for output in manifest.outputs if output.role == role), None)
        return None if named is None else outputs_on(lambda features: run(features)[named], held_out)

    rng = np.random.default_rng(seed)
    calibration = calibrate_label_free(outputs("logits"), outputs("embedding"), held_out.labels, rng)
    return {LABEL_FREE_FILE: calibration.encode()}

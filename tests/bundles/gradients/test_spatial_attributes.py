"""Every attribute that a supported opset defines is read by the rule or refused: none passes unnoticed."""

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType

import onnx
import pytest

from server_bridge.bundles.checks import OPSET_MAX, OPSET_MIN
from server_bridge.bundles.gradients import (
    batch_statistics,
    convolution,
    filters,
    layer_normalisation,
    normalisation,
    pooling,
    transposed_convolution,
    windows,
)

IGNORED: Mapping[str, frozenset[str]] = {
    "Conv": frozenset({"kernel_shape"}),
    "ConvTranspose": frozenset({"kernel_shape"}),
    "BatchNormalization": frozenset({"consumed_inputs", "is_test", "spatial"}),
}
"""What the weight's shape says already, and what opsets before 13 had."""

READERS: Mapping[str, tuple[ModuleType | Callable[..., object], ...]] = {
    "Conv": (convolution, filters, windows),
    "ConvTranspose": (transposed_convolution,),
    "MaxPool": (pooling.max_pool, pooling._windows, windows),
    "AveragePool": (pooling.average_pool, pooling._windows, windows),
    "GlobalAveragePool": (pooling,),
    "GlobalMaxPool": (pooling,),
    "BatchNormalization": (normalisation, batch_statistics),
    "LayerNormalization": (layer_normalisation,),
    "InstanceNormalization": (layer_normalisation,),
    "GroupNormalization": (layer_normalisation,),
}


@pytest.mark.parametrize("operator", READERS)
def test_every_attribute_is_read(operator: str) -> None:
    source = "".join(inspect.getsource(reader) for reader in READERS[operator])
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == operator and s.domain == ""]
    supported = [schema for schema in schemas if schema.since_version <= OPSET_MAX and not schema.deprecated]
    newest_old = max((s.since_version for s in supported if s.since_version <= OPSET_MIN), default=0)
    names = {name for schema in supported if schema.since_version >= newest_old for name in schema.attributes}
    assert {name for name in names - IGNORED.get(operator, frozenset()) if f'"{name}"' not in source} == set()

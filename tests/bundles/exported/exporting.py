"""Nets as torch's two exporters write them."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import onnx
import torch

from tests.bundles.exported.architectures import ARCHITECTURES, example

SEEN_BATCH = 3
"""Rows of the example that an exporter traces; 0 and 1 would be taken as constants."""


def by_script(name: str, net: Any, *, opset: int = 17) -> onnx.ModelProto:
    """A net through the exporter that traces TorchScript."""
    rows = example(name, SEEN_BATCH)
    free = {"x": {0: "batch"}, "y": {0: "batch"}}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder) / "net.onnx"
        torch.onnx.export(
            net,
            (rows,),
            file,
            dynamo=False,
            opset_version=opset,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes=free,
        )
        return onnx.load(file)


def by_dynamo(name: str, net: Any, *, opset: int = 20, optimised: bool = True) -> onnx.ModelProto:
    """A net through the exporter that is built on torch.export; what it notes of the source is left out."""
    rows = example(name, SEEN_BATCH)
    free = {0: torch.export.Dim("batch")}
    if ARCHITECTURES[name].free:
        free[ARCHITECTURES[name].free] = torch.export.Dim("time", min=4, max=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            net,
            (rows,),
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=(free,),
            input_names=["x"],
            output_names=["y"],
            optimize=optimised,
            verbose=False,
        )
    assert program is not None
    return bare(program.model_proto)


def bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model without the exporter's notes on its source, which are most of a small file."""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    return model

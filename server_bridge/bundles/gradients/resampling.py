"""Gradient of Resize: up and down, by nearest neighbours or interpolation."""

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_agent.model.session import Session
from server_bridge.bundles.gradients.site import Site

_SCALES, _SIZES = 2, 3


def resize(site: Site) -> Mapping[int, str]:
    """Every axis on its own is a product with a matrix, and so is its gradient.

    The matrix is what the operator itself makes of unit vectors, so whatever mode, rounding and coordinates a node
    has are its own. Batch and channels are never resized.
    """
    if site.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        raise site.refusal("attribute coordinate_transformation_mode='tf_crop_and_resize' has no gradient rule")
    if site.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise site.refusal("attribute keep_aspect_ratio_policy has no gradient rule", "give the sizes")
    given = site.fixed(site.shape(0)[2:], "the input's spatial part")
    made = site.fixed(site.output_shape[2:], "the output's spatial part")
    gradient = site.upstream
    for place, (size, resized) in enumerate(zip(given, made, strict=True)):
        matrix = _matrix(site, 2 + place, size)
        if resized != size or not np.array_equal(matrix, np.eye(size)):
            gradient = _multiplied(site, gradient, 2 + place, matrix.T)
    return {0: gradient}


def _matrix(site: Site, axis: int, size: int) -> NDArray[np.float32]:
    """(size, resized): row i is what becomes of the i-th unit vector along the axis."""
    rank = len(site.shape(0))
    shape = [1] * rank
    shape[0], shape[axis] = size, size
    node = onnx.NodeProto()
    node.CopyFrom(site.node)
    kept = [attribute for attribute in node.attribute if attribute.name != "axes"]
    node.ClearField("attribute")
    node.attribute.extend(kept)
    position = _SIZES if site.has(_SIZES) else _SCALES
    values = _along(site, position, axis, shape)
    node.input[:] = ["units", "", *("" if place != position else "how" for place in (_SCALES, _SIZES)[: position - 1])]
    node.output[:] = ["made"]
    graph = helper.make_graph(
        [node],
        "axis",
        [helper.make_tensor_value_info("units", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("made", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, "how")],
    )
    imports = site.forward.model.opset_import
    model = helper.make_model(graph, opset_imports=imports, ir_version=site.forward.model.ir_version)
    units = np.eye(size, dtype=np.float32).reshape(shape)
    made = Session("one axis of a Resize", model.SerializeToString(), {}, threads=1).run({"units": units})["made"]
    return made.reshape(size, -1)


def _along(site: Site, position: int, axis: int, shape: list[int]) -> NDArray[np.float32] | NDArray[np.int64]:
    """Scales or sizes of one axis among axes that stay as they are."""
    rank = len(shape)
    axes = [place % rank for place in site.integers("axes", range(rank))]
    if position == _SIZES:
        sizes = np.array(shape, dtype=np.int64)
        sizes[axis] = site.fixed(site.output_shape[axis : axis + 1], "the output")[0]
        return sizes
    scales = np.ones(rank, dtype=np.float32)
    known = site.constant(_SCALES)
    if known is None:
        raise site.refusal("input scales is computed while the graph runs")
    if axis in axes:
        scales[axis] = known[axes.index(axis)]
    return scales


def _multiplied(site: Site, value: str, axis: int, matrix: NDArray[np.float32]) -> str:
    """Sums over one axis, weighted by a matrix (there, here)."""
    graph, rank = site.graph, len(site.shape(0))
    weights = graph.constant(np.ascontiguousarray(matrix))
    if axis == rank - 1:
        return graph.emit("MatMul", value, weights)
    order = [place for place in range(rank) if place != axis] + [axis]
    inverse = [order.index(place) for place in range(rank)]
    product = graph.emit("MatMul", graph.emit("Transpose", value, perm=order), weights)
    return graph.emit("Transpose", product, perm=inverse)

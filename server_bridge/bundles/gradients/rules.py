"""The rule table: operator to gradient."""

from collections.abc import Mapping
from types import MappingProxyType

from server_bridge.bundles.gradients import (
    activation,
    convolution,
    elementwise,
    extent,
    indexing,
    layer_normalisation,
    layout,
    linear,
    normalisation,
    pooling,
    reductions,
    resampling,
    transposed_convolution,
)
from server_bridge.bundles.gradients.site import Rule

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "Abs": elementwise.absolute,
        "Add": elementwise.add,
        "AveragePool": pooling.average_pool,
        "BatchNormalization": normalisation.batch_normalisation,
        "Cast": elementwise.cast,
        "Clip": activation.clip,
        "Concat": layout.concatenate,
        "Conv": convolution.convolution,
        "ConvTranspose": transposed_convolution.transposed_convolution,
        "Cos": elementwise.cosine,
        "CumSum": reductions.cumulative_sum,
        "DepthToSpace": layout.depth_to_space,
        "Div": elementwise.divide,
        "Dropout": elementwise.dropout,
        "Einsum": linear.einsum,
        "Elu": activation.elu,
        "Erf": activation.erf,
        "Exp": elementwise.exponential,
        "Expand": extent.expand,
        "Flatten": layout.reshape,
        "Gather": indexing.gather,
        "GatherElements": indexing.gather_elements,
        "GatherND": indexing.gather_nd,
        "Gelu": activation.gelu,
        "Gemm": linear.gemm,
        "GlobalAveragePool": pooling.global_average_pool,
        "GlobalMaxPool": pooling.global_max_pool,
        "GroupNormalization": layer_normalisation.group_normalisation,
        "HardSigmoid": activation.hard_sigmoid,
        "HardSwish": activation.hard_swish,
        "Identity": elementwise.identity,
        "InstanceNormalization": layer_normalisation.instance_normalisation,
        "LayerNormalization": layer_normalisation.layer_normalisation,
        "LeakyRelu": activation.leaky_relu,
        "Log": elementwise.logarithm,
        "LogSoftmax": normalisation.log_softmax,
        "MatMul": linear.matmul,
        "Max": elementwise.extremum,
        "MaxPool": pooling.max_pool,
        "Mean": elementwise.mean,
        "Min": elementwise.extremum,
        "Mul": elementwise.multiply,
        "Neg": elementwise.negate,
        "PRelu": activation.parametric_relu,
        "Pad": extent.pad,
        "Pow": elementwise.power,
        "Reciprocal": elementwise.reciprocal,
        "ReduceL1": reductions.reduce_absolute,
        "ReduceL2": reductions.reduce_euclidean,
        "ReduceLogSumExp": reductions.reduce_log_sum_exp,
        "ReduceMax": reductions.reduce_extremum,
        "ReduceMean": reductions.reduce_mean,
        "ReduceMin": reductions.reduce_extremum,
        "ReduceSum": reductions.reduce_sum,
        "ReduceSumSquare": reductions.reduce_squares,
        "Relu": activation.relu,
        "Reshape": layout.reshape,
        "Resize": resampling.resize,
        "Selu": activation.selu,
        "Sigmoid": activation.sigmoid,
        "Sin": elementwise.sine,
        "Slice": indexing.cut,
        "Softmax": normalisation.softmax,
        "Softplus": activation.softplus,
        "Softsign": activation.softsign,
        "SpaceToDepth": layout.space_to_depth,
        "Split": layout.split,
        "Sqrt": elementwise.square_root,
        "Squeeze": layout.reshape,
        "Sub": elementwise.subtract,
        "Sum": elementwise.add,
        "Tanh": activation.tanh,
        "Tile": extent.tile,
        "Transpose": layout.transpose,
        "Trilu": layout.triangle,
        "Unsqueeze": layout.reshape,
        "Where": elementwise.where,
    }
)

FLAT = frozenset({"Ceil", "ConstantOfShape", "EyeLike", "Floor", "Hardmax", "Range", "Round", "Shape", "Sign", "Size"})
"""Operators whose slope is 0 wherever it is defined, or that read shapes only: no gradient goes further."""

ANY_OUTPUT = frozenset({"Split"})
"""Operators whose rule takes gradients of every output; the others' are refused beyond the first."""

ANY_TYPE = frozenset({"Cast"})
"""Operators whose output need not be float32."""

_DRAWN = "it draws other numbers in each run; export the model in evaluation mode"

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "DequantizeLinear": "quantised values are not trained",
        "QuantizeLinear": "quantised values are not trained",
        "Bernoulli": _DRAWN,
        "GRU": "recurrent layers stay frozen",
        "LSTM": "recurrent layers stay frozen",
        "RNN": "recurrent layers stay frozen",
        "If": "branches stay frozen",
        "Loop": "loops stay frozen",
        "Scan": "loops stay frozen",
        "RandomNormalLike": _DRAWN,
        "RandomUniformLike": _DRAWN,
        "ReduceProd": "a product's slope divides by its factors, which may be 0",
        "ScatterND": "written slices are not traced",
        "ScatterElements": "written elements are not traced",
        "TopK": "which elements are chosen has no slope; use Max or ReduceMax",
    }
)
"""Why an operator that nets do contain has no rule."""

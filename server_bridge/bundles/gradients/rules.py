"""The rule table: operator to gradient."""

from collections.abc import Mapping
from types import MappingProxyType

from server_bridge.bundles.gradients import (
    convolution,
    elementwise,
    layer_normalisation,
    layout,
    linear,
    normalisation,
    pooling,
)
from server_bridge.bundles.gradients.site import Rule

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "Add": elementwise.add,
        "AveragePool": pooling.average_pool,
        "BatchNormalization": normalisation.batch_normalisation,
        "Concat": layout.concatenate,
        "Conv": convolution.convolution,
        "Div": elementwise.divide,
        "Dropout": elementwise.identity,
        "Flatten": layout.reshape,
        "Gemm": linear.gemm,
        "GlobalAveragePool": pooling.global_average_pool,
        "GroupNormalization": layer_normalisation.group_normalisation,
        "Identity": elementwise.identity,
        "InstanceNormalization": layer_normalisation.instance_normalisation,
        "LayerNormalization": layer_normalisation.layer_normalisation,
        "LogSoftmax": normalisation.log_softmax,
        "MatMul": linear.matmul,
        "MaxPool": pooling.max_pool,
        "Mul": elementwise.multiply,
        "Neg": elementwise.negate,
        "Relu": elementwise.relu,
        "Reshape": layout.reshape,
        "Sigmoid": elementwise.sigmoid,
        "Softmax": normalisation.softmax,
        "Squeeze": layout.reshape,
        "Sub": elementwise.subtract,
        "Tanh": elementwise.tanh,
        "Transpose": layout.transpose,
        "Unsqueeze": layout.reshape,
    }
)

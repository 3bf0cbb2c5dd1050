"""Reverse-mode differentiation of ONNX graphs, in plain ONNX operators."""

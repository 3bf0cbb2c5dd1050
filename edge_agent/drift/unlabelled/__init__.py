"""The monitor ``label-free``: inputs, outputs and embeddings judged together, by one statistic with one threshold."""

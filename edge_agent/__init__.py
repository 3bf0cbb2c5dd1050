"""edge-agent: ONNX inference, drift monitoring, fine-tuning and over-the-air updates on a gateway."""

__version__ = "0.1.0"

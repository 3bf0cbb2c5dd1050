"""edge-agent: ONNX inference, drift monitoring, fine-tuning and over-the-air updates on a gateway."""

import os

__version__ = "0.1.0"

# Merely imported, onnxruntime 1.32 writes a device id and an event store under ~/.cache, and a thread of its own sends
# them to its maker (measured). It asks for this before it does; nothing leaves a plant that its operator did not send.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

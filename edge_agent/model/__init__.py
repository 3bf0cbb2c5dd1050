"""The bundle on disk, inference and training steps. The only importer of onnxruntime."""

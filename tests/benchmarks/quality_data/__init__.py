"""The learning-quality benchmark's tasks, and the same fine-tuning in torch."""

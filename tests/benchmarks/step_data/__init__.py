"""The training-step benchmark's nets, its two sides in processes of their own, and its picture."""

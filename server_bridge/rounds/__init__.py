"""When to adapt, and adaptations from trigger to release."""

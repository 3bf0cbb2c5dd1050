"""The one place that builds the agent's parts and supervises them."""

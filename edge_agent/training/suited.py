"""Which bundles can be followed between rounds; without what follows them, so that an agent can ask cheaply."""

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle


def unsuited(bundle: Bundle, graph: str) -> str | None:
    """Why a bundle cannot be followed between rounds by a graph; None: it can."""
    try:
        named = bundle.training_graph(graph)
    except DataError as error:
        return error.problem
    if bundle.manifest.tasks:
        return "its tasks have heads of their own, and it is not known which samples move which"
    if named.label_input is not None:
        return f"training graph {graph!r} takes labels"
    if bundle.manifest.classes is None:
        return "it predicts no classes"
    return None

"""What a model's features are called, one name each, in the order in which monitors see them."""

import math

from edge_agent.wire.manifest import Manifest, TensorSpec


def feature_names(manifest: Manifest, count: int) -> tuple[list[str], list[str]]:
    """Names and units of the flattened inputs.

    Args:
        manifest: its ``features`` name each value; or, where there are fewer and the last axis has as many, each
            column of that axis; else the inputs' own names are numbered: ``x[3]``.
        count: how many values the inputs have together, flattened.

    Returns:
        Two lists of ``count`` entries.

    Cost: O(count).
    """
    given = manifest.features
    if len(given) == count:
        return [spec.name for spec in given], [spec.unit for spec in given]
    numbered = [name for spec in manifest.inputs for name in _numbered(spec, count, alone=len(manifest.inputs) == 1)]
    if given and len(manifest.inputs) == 1 and _last(manifest.inputs[0], count) == len(given):
        columns = [given[place % len(given)] for place in range(count)]
        return [f"{spec.name}[{place // len(given)}]" for place, spec in enumerate(columns)], [s.unit for s in columns]
    if len(numbered) != count:
        numbered = [f"feature[{place}]" for place in range(count)]
    return numbered, [""] * count


def _numbered(spec: TensorSpec, count: int, *, alone: bool) -> list[str]:
    sizes = [size for size in spec.shape[1:] if isinstance(size, int)]
    size = count if alone else math.prod(sizes) if len(sizes) == len(spec.shape) - 1 else 0
    return [f"{spec.name}[{place}]" for place in range(size)] if size != 1 else [spec.name]


def _last(spec: TensorSpec, count: int) -> int:
    last = spec.shape[-1] if len(spec.shape) > 1 else 0
    return last if isinstance(last, int) and last and count % last == 0 else 0

"""Gradients of operators that repeat, stretch or pad."""

from collections.abc import Mapping, Sequence

from server_bridge.bundles.gradients.site import Site, unbroadcast


def expand(site: Site) -> Mapping[int, str]:
    """Stretched axes: the sum over them."""
    return {0: unbroadcast(site.graph, site.upstream, site.output_shape, site.shape(0))}


def tile(site: Site) -> Mapping[int, str]:
    """Repeats: the sum over them."""
    graph, x = site.graph, site.node.input[0]
    rank = len(site.shape(0))
    both = [
        graph.emit("Unsqueeze", name, graph.integers((1,))) for name in (site.node.input[1], graph.emit("Shape", x))
    ]
    apart = graph.emit("Reshape", graph.emit("Concat", *both, axis=1), graph.integers((-1,)))
    repeated = graph.emit("Reshape", site.upstream, apart)
    return {0: graph.sum_over(repeated, list(range(0, 2 * rank, 2)), keepdims=0)}


def pad(site: Site) -> Mapping[int, str]:
    """Padding: what is inside, and for the modes but constant what the border repeats."""
    graph, mode = site.graph, site.text("mode", "constant")
    if mode == "constant":
        further = ["", site.node.input[3]] if site.has(3) else []
        return {0: graph.emit("Pad", site.upstream, graph.emit("Neg", site.node.input[1]), *further)}
    if mode not in ("reflect", "edge", "wrap"):
        raise site.refusal(f"attribute mode={mode!r} has no gradient rule", "use constant, reflect, edge or wrap")
    gradient = site.upstream
    for axis, begin, end in _borders(site):
        gradient = _folded(site, gradient, axis, begin, end, mode)
    return {0: gradient}


def _borders(site: Site) -> Sequence[tuple[int, int, int]]:
    """(axis, padding before, padding after) of the padded axes."""
    rank = len(site.shape(0))
    pads = site.fixed_integers(1, "input pads")
    axes = [axis % rank for axis in site.fixed_integers(3, "input axes")] if site.has(3) else range(rank)
    if min(pads) < 0:
        raise site.refusal(f"input pads is negative where mode is {site.text('mode', 'constant')!r}")
    half = len(pads) // 2
    borders = zip(axes, pads[:half], pads[half:], strict=True)
    return [(axis, begin, end) for axis, begin, end in borders if begin or end]


def _folded(site: Site, gradient: str, axis: int, begin: int, end: int, mode: str) -> str:
    """Add the borders of one axis to what they repeat."""
    size = site.fixed((site.shape(0)[axis],), "a padded axis")[0]
    if mode == "wrap" and max(begin, end) > size:
        raise site.refusal(f"input pads goes round more than once where mode is {mode!r}")
    places = {"reflect": (1, size - 1 - end), "edge": (0, size - 1), "wrap": (size - begin, 0)}[mode]
    summands = [_between(site, gradient, axis, begin, begin + size)]
    for width, start, place in ((begin, 0, places[0]), (end, begin + size, places[1])):
        if not width:
            continue
        border = _between(site, gradient, axis, start, start + width)
        length = 1 if mode == "edge" else width
        if mode == "edge":
            border = site.graph.sum_over(border, [axis], keepdims=1)
        if mode == "reflect":
            border = _flipped(site, border, axis)
        summands.append(_surrounded(site, border, axis, place, size - place - length))
    return site.graph.emit("Sum", *summands)


def _between(site: Site, value: str, axis: int, start: int, end: int) -> str:
    bounds = ((start,), (end,), (axis,))
    return site.graph.emit("Slice", value, *(site.graph.integers(values) for values in bounds))


def _flipped(site: Site, value: str, axis: int) -> str:
    bounds = ((-1,), (-(2**31),), (axis,), (-1,))
    return site.graph.emit("Slice", value, *(site.graph.integers(values) for values in bounds))


def _surrounded(site: Site, value: str, axis: int, before: int, after: int) -> str:
    """Zeros before and after along an axis."""
    rank = len(site.shape(0))
    begin, end = [0] * rank, [0] * rank
    begin[axis], end[axis] = before, after
    return site.graph.emit("Pad", value, site.graph.integers((*begin, *end)))

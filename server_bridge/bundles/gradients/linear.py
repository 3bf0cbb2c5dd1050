"""Gradients of matrix products."""

from collections.abc import Mapping

from server_bridge.bundles.gradients.site import Site, unbroadcast


def gemm(site: Site) -> Mapping[int, str]:
    """``alpha A' B' + beta C``, where ``'`` may transpose."""
    graph, upstream = site.graph, site.upstream
    a, b = site.node.input[:2]
    alpha, beta = site.number("alpha", 1.0), site.number("beta", 1.0)
    turned_a, turned_b = site.integer("transA", 0), site.integer("transB", 0)
    gradients = {}
    if 0 in site.wanted:
        gradients[0] = (
            graph.emit("Gemm", b, upstream, alpha=alpha, transA=turned_b, transB=1)
            if turned_a
            else graph.emit("Gemm", upstream, b, alpha=alpha, transA=0, transB=1 - turned_b)
        )
    if 1 in site.wanted:
        gradients[1] = (
            graph.emit("Gemm", upstream, a, alpha=alpha, transA=1, transB=turned_a)
            if turned_b
            else graph.emit("Gemm", a, upstream, alpha=alpha, transA=1 - turned_a, transB=0)
        )
    if 2 in site.wanted:
        offset = unbroadcast(graph, upstream, site.output_shape, site.shape(2))
        gradients[2] = offset if beta == 1.0 else graph.emit("Mul", offset, graph.scalar(beta))
    return gradients


def matmul(site: Site) -> Mapping[int, str]:
    """``A B`` over leading batch dimensions, which may broadcast."""
    graph, upstream = site.graph, site.upstream
    b = site.node.input[1]
    shape_a, shape_b = site.shape(0), site.shape(1)
    if len(shape_a) < 2 or len(shape_b) < 2:
        raise site.refusal("a one-dimensional operand has no gradient rule", "reshape it to a matrix")
    gradients = {}
    if 0 in site.wanted:
        product = graph.emit("MatMul", upstream, _turned(site, b, len(shape_b)))
        gradients[0] = unbroadcast(graph, product, (*site.output_shape[:-2], *shape_a[-2:]), shape_a)
    if 1 in site.wanted:
        gradients[1] = _right_gradient(site)
    return gradients


def _right_gradient(site: Site) -> str:
    """A matrix shared by a batch sees the batch as more rows: one product, no sum over a big tensor."""
    graph, a = site.graph, site.node.input[0]
    shape_a, shape_b = site.shape(0), site.shape(1)
    if len(shape_b) == 2:
        columns_in, columns_out = site.fixed(shape_b, "the right operand")
        rows_a = a if len(shape_a) == 2 else graph.reshape(a, (-1, columns_in))
        rows = site.upstream if len(shape_a) == 2 else graph.reshape(site.upstream, (-1, columns_out))
        return graph.emit("Gemm", rows_a, rows, transA=1)
    product = graph.emit("MatMul", _turned(site, a, len(shape_a)), site.upstream)
    return unbroadcast(graph, product, (*site.output_shape[:-2], *shape_b[-2:]), shape_b)


def _turned(site: Site, value: str, rank: int) -> str:
    return site.graph.emit("Transpose", value, perm=(*range(rank - 2), rank - 1, rank - 2))

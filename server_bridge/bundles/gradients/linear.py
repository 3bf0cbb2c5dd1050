"""Gradients of matrix products."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server_bridge.bundles.gradients.forward import Shape
from server_bridge.bundles.gradients.graph import GraphBuilder
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
        offset = unbroadcast(graph, upstream, site.output_shape, site.shape(2), site.rows)
        gradients[2] = offset if beta == 1.0 else graph.emit("Mul", offset, graph.scalar(beta))
    return gradients


def matmul(site: Site) -> Mapping[int, str]:
    """``A B`` over leading batch dimensions, which may broadcast; a vector is a row on the left, a column on the right.

    Where an operand is a vector, the axis that it lacks is put back, and taken away from its gradient.
    """
    graph, shape_a, shape_b = site.graph, site.shape(0), site.shape(1)
    ranks = (len(shape_a), len(shape_b))
    a, b = site.node.input
    row = a if ranks[0] > 1 else graph.emit("Unsqueeze", a, graph.integers((0,)))
    column = b if ranks[1] > 1 else graph.emit("Unsqueeze", b, graph.integers((1,)))
    absent = [place - 3 for place, rank in ((1, ranks[0]), (2, ranks[1])) if rank == 1]
    whole = graph.emit("Unsqueeze", site.upstream, graph.integers(absent)) if absent else site.upstream
    shapes = (
        site.shape(0) if ranks[0] > 1 else (1, *site.shape(0)),
        site.shape(1) if ranks[1] > 1 else (*site.shape(1), 1),
    )
    product = Product(graph, row, column, whole, shapes, _leading(site, absent))
    gradients = {}
    if 0 in site.wanted:
        gradients[0] = product.left() if ranks[0] > 1 else graph.reshape_like(product.left(), a)
    if 1 in site.wanted:
        gradients[1] = product.right() if ranks[1] > 1 else graph.reshape_like(product.right(), b)
    return gradients


def einsum(site: Site) -> Mapping[int, str]:
    """A sum of products by index letters: the same with output and operand exchanged.

    Letters that stand in one operand alone are summed over: there the gradient is stretched.
    """
    equation = site.text("equation", "").replace(" ", "")
    operands, arrow, output = equation.partition("->")
    terms = operands.split(",")
    if not arrow or "." in equation or any(len(set(term)) < len(term) for term in (*terms, output)):
        raise site.refusal(
            f"attribute equation={equation!r} has no gradient rule", "write each letter once in a term, and ->"
        )
    return {position: _einsum_gradient(site, terms, output, position) for position in site.wanted}


@dataclass(frozen=True)
class Product:
    """A product of matrices, seen from behind.

    Args:
        graph: where to write.
        a: (..., n, k).
        b: (..., k, m).
        upstream: (..., n, m).
        shapes: of a and b.
        leading: the upstream's dimensions but for the last two.
    """

    graph: GraphBuilder
    a: str
    b: str
    upstream: str
    shapes: tuple[Shape, Shape]
    leading: Shape

    def left(self) -> str:
        """The gradient of ``a``."""
        shape = self.shapes[0]
        product = self.graph.emit("MatMul", self.upstream, self._turned(self.b, len(self.shapes[1])))
        return unbroadcast(self.graph, product, (*self.leading, *shape[-2:]), shape)

    def right(self) -> str:
        """The gradient of ``b``; a matrix shared by a batch sees the batch as more rows: one product, no sum."""
        graph, (shape_a, shape_b) = self.graph, self.shapes
        sizes = [size for size in shape_b if size is not None]
        if len(shape_b) == 2 and (len(shape_a) == 2 or len(sizes) == 2):
            rows_a, rows = self.a, self.upstream
            if len(shape_a) > 2:
                rows_a, rows = graph.reshape(self.a, (-1, sizes[0])), graph.reshape(self.upstream, (-1, sizes[1]))
            return graph.emit("Gemm", rows_a, rows, transA=1)
        product = graph.emit("MatMul", self._turned(self.a, len(shape_a)), self.upstream)
        return unbroadcast(graph, product, (*self.leading, *shape_b[-2:]), shape_b)

    def _turned(self, value: str, rank: int) -> str:
        return self.graph.emit("Transpose", value, perm=(*range(rank - 2), rank - 1, rank - 2))


def _leading(site: Site, absent: Sequence[int]) -> Shape:
    shape = site.output_shape
    return shape[: len(shape) - (2 - len(absent))]


def _einsum_gradient(site: Site, terms: Sequence[str], output: str, position: int) -> str:
    graph, term = site.graph, terms[position]
    others = [place for place in range(len(terms)) if place != position]
    known = set(output).union(*(terms[place] for place in others))
    present = "".join(letter for letter in term if letter in known)
    equation = ",".join([output, *(terms[place] for place in others)]) + "->" + present
    gradient = graph.emit("Einsum", site.upstream, *(site.node.input[place] for place in others), equation=equation)
    if present == term:
        return gradient
    absent = [place for place, letter in enumerate(term) if letter not in known]
    whole = graph.emit("Unsqueeze", gradient, graph.integers(absent))
    return graph.emit("Expand", whole, graph.emit("Shape", site.node.input[position]))

"""What a rule does not do is refused by node, operator and attribute or input, with the way out."""

import numpy as np
import pytest

from edge_agent.errors import DataError
from tests.bundles.gradients.cases import Case, assembled, ints, node
from tests.bundles.gradients.differences import gradients_of

INDICES = np.zeros((3, 4, 1), dtype=np.int64)
CROP = np.array([0, 0, 0, 1, 1, 1], dtype="f4")
REFUSED = [
    (
        Case(
            "wrap", (4, 3), [node("Pad", "h p", mode="wrap", name="n")], frozen={"p": ints(0, 1, 4, 0, 0, 0)}, opset=19
        ),
        r"\(Pad\): input pads goes round more than once where mode is 'wrap'",
    ),
    (
        Case("noise", (4, 3), [node("RandomNormalLike", "h", "q", name="n"), node("Add", "h q")]),
        r"\(RandomNormalLike\): .* it draws other numbers in each run; export the model in evaluation mode",
    ),
    (
        Case(
            "reflect inwards",
            (4, 3),
            [node("Pad", "h p", mode="reflect", name="n")],
            frozen={"p": ints(0, 0, 1, 0, 0, -1)},
        ),
        r"\(Pad\): input pads is negative where mode is 'reflect'",
    ),
    (
        Case("value of padding", (4, 3), [node("Pad", "h p w", name="n")], {"w": ()}, {"p": ints(0, 0, 1, 0, 0, 0)}),
        r"\(Pad\): its input 'w' cannot be trained \(leave it out",
    ),
    (
        Case("batch dims", (4, 3), [node("GatherND", "h i", batch_dims=1, name="n")], frozen={"i": INDICES}),
        r"\(GatherND\): attribute batch_dims has no gradient rule",
    ),
    (
        Case("ellipsis", (4, 3), [node("Einsum", "h", equation="...i->...i", name="n")]),
        r"\(Einsum\): attribute equation='\.\.\.i->\.\.\.i' has no gradient rule \(write each letter once",
    ),
    (
        Case("diagonal", (3, 3), [node("Einsum", "h", equation="bii->bi", name="n")]),
        r"\(Einsum\): attribute equation='bii->bi'",
    ),
    (
        Case(
            "crop",
            (2, 4),
            [node("Resize", "h roi s", coordinate_transformation_mode="tf_crop_and_resize", mode="linear", name="n")],
            frozen={"roi": CROP, "s": np.array([1, 1, 2], dtype="f4")},
        ),
        r"\(Resize\): attribute coordinate_transformation_mode='tf_crop_and_resize'",
    ),
    (
        Case("product", (4, 3), [node("ReduceProd", axes=[1], name="n")]),
        r"\(ReduceProd\): the operator has no gradient rule: a product's slope",
    ),
    (
        Case("top", (4, 3), [node("TopK", "h k", "z places", axis=1, name="n")], frozen={"k": ints(2)}),
        r"\(TopK\): the operator has no gradient rule: which elements are chosen",
    ),
    (
        Case(
            "write",
            (4,),
            [node("ScatterND", "h i u", name="n")],
            frozen={"i": ints(0).reshape(1, 1), "u": np.ones((1, 4), "f4")},
        ),
        r"\(ScatterND\): the operator has no gradient rule: written slices",
    ),
    (
        Case(
            "computed axes of a slice",
            (4, 3),
            [
                node("ReduceMin", "h", "q", keepdims=0),
                node("Mul", "q nothing", "r"),
                node("Cast", "r", "c", to=7),
                node("Add", "one c", "a"),
                node("Slice", "h one two a", name="n"),
            ],
            frozen={"nothing": np.array(0, "f4"), "one": ints(1), "two": ints(2)},
        ),
        r"\(Slice\): input axes \('a'\) is computed while the graph runs",
    ),
]


@pytest.mark.parametrize(("case", "message"), REFUSED, ids=[case.name for case, _ in REFUSED])
def test_refusal_names_the_reason(case: Case, message: str) -> None:
    model, trainable, x, labels = assembled(case)
    with pytest.raises(DataError, match=rf"node 'n' {message}"):
        gradients_of(model, trainable, "cross-entropy", x, labels)

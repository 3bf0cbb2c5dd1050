"""Write the committed files of torch's newer exporter: ``python -m tests.bundles.exported.make_files``."""

from pathlib import Path

import onnx

from tests.bundles.exported.architectures import made
from tests.bundles.exported.exporting import by_dynamo

FILES = Path(__file__).with_name("files")
KINDS = {
    "temporal": ("temporal", 18, True),
    "mobile": ("mobile", 20, True),
    "mobile-as-traced": ("mobile", 18, False),
    "encoder": ("encoder", 18, True),
    "encoder-as-traced": ("encoder", 18, False),
    "encoder-with-attention": ("encoder", 23, True),
    "gru": ("gru", 20, True),
    "sequence": ("sequence", 20, True),
    "text": ("text", 20, True),
}
"""File name: architecture, opset, whether the exporter optimises (and so folds batch normalisation away)."""


def exported(file: str) -> onnx.ModelProto:
    """The model of a file, exported afresh."""
    name, opset, optimised = KINDS[file]
    return by_dynamo(name, made(name), opset=opset, optimised=optimised)


def main() -> None:
    """Write them all."""
    FILES.mkdir(exist_ok=True)
    for file in KINDS:
        model = exported(file)
        (FILES / f"{file}.onnx").write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()

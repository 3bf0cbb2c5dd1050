"""Write the committed files of skl2onnx, which no test needs: ``python make_sklearn.py``.

Last run with skl2onnx 1.20.0, scikit-learn 1.9.1.
"""

import warnings
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FILES = Path(__file__).with_name("files")
OPSETS = {"": 17, "ai.onnx.ml": 3}


def main() -> None:
    """Write classifiers of three and of two classes, of names, without dictionaries, and a regressor."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 6)).astype(np.float32)
    three, two = rng.integers(0, 3, 200), rng.integers(0, 2, 200)
    classifier = MLPClassifier((8, 5), max_iter=20, random_state=0)
    regressor = MLPRegressor(hidden_layer_sizes=(8, 5), activation="tanh", max_iter=20, random_state=0)
    kinds = {
        "sklearn-three": (classifier, three, True),
        "sklearn-two": (classifier, two, True),
        "sklearn-names": (classifier, np.array(["low", "mid", "high"])[three], True),
        "sklearn-tensor": (classifier, two, False),
        "sklearn-value": (regressor, x[:, 0] - x[:, 1], True),
    }
    for name, (net, labels, dictionaries) in kinds.items():
        pipeline = make_pipeline(StandardScaler(), net).fit(x, labels)
        options = None if dictionaries else {MLPClassifier: {"zipmap": False}}
        model = to_onnx(pipeline, x[:1], options=options, target_opset=OPSETS)
        (FILES / f"{name}.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()

"""Write the committed files of Keras's converter; needs keras, tensorflow-cpu and tf2onnx, which no test does.

``python make_keras.py`` in an environment of its own (tf2onnx wants an old onnx). Last run with keras 3.15.1,
tensorflow 2.21.0, tf2onnx 1.17.0.
"""

import os
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import onnx
from keras import layers

FILES = Path(__file__).with_name("files")


def image_net() -> Any:
    """Channels last, batch normalisation, a depthwise convolution, a softmax."""
    return keras.Sequential(
        [
            layers.Input((12, 12, 2)),
            layers.Conv2D(6, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(6.0),
            layers.MaxPooling2D(3, strides=2, padding="same"),
            layers.DepthwiseConv2D(3, padding="same", strides=2),
            layers.Conv2D(8, 1, activation="swish"),
            layers.AveragePooling2D(2, strides=1, padding="same"),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.2),
            layers.Dense(4, activation="softmax"),
        ]
    )


def series_net() -> Any:
    """Causal dilated convolutions, layer normalisation in single steps, one value."""
    return keras.Sequential(
        [
            layers.Input((20, 3)),
            layers.Conv1D(8, 3, padding="causal", activation="relu"),
            layers.Conv1D(8, 3, padding="causal", dilation_rate=2, activation="tanh"),
            layers.LayerNormalization(),
            layers.Flatten(),
            layers.Dense(8, activation="elu"),
            layers.Dense(1),
        ]
    )


def main() -> None:
    """Write both, with weights as if they had been trained."""
    for name, make in (("keras-image", image_net), ("keras-series", series_net)):
        keras.utils.set_random_seed(0)
        net = make()
        rng = np.random.default_rng(0)
        for weight in net.weights:
            if weight.dtype == "float32" and "seed" not in weight.path:
                moved = np.abs(weight.numpy() + 0.1 * rng.normal(size=weight.shape))
                weight.assign(
                    moved if "variance" in weight.path else weight.numpy() + 0.1 * rng.normal(size=weight.shape)
                )
        net.predict(np.zeros((2, *net.input_shape[1:]), dtype=np.float32), verbose=0)
        file = FILES / f"{name}.onnx"
        net.export(file, format="onnx", verbose=False)
        onnx.checker.check_model(file)


if __name__ == "__main__":
    main()

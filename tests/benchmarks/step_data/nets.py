"""The nets in torch; every side of the comparison comes from here, by torch's own exporter."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import nn

from tests.benchmarks.step_data.cases import BATCH, Case

INPUT, LOGITS = "x", "logits"
OPSET = 17


def draw(case: Case, seed: int) -> Any:
    """The net with torch's own initial weights, in evaluation mode: BatchNorm is frozen, Dropout is off."""
    import torch

    torch.manual_seed(seed)
    net = _NETS[case.name](case).eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after some training, or it would be the identity
            nn.init.normal_(module.get_buffer("running_mean"), 0.0, 0.1)
            nn.init.uniform_(module.get_buffer("running_var"), 0.5, 1.5)
    return net


def export(net: Any, case: Case, path: Path) -> None:
    """Write the net as ONNX, its parameters under torch's names where the exporter keeps them."""
    import torch

    sample = torch.zeros(BATCH, *case.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own exporters
        torch.onnx.export(
            net,
            (sample,),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=[LOGITS],
            dynamic_axes={INPUT: {0: "batch"}, LOGITS: {0: "batch"}},
            training=torch.onnx.TrainingMode.PRESERVE,  # else it folds BatchNorm into the convolution
            do_constant_folding=False,
        )


class _Encoder(nn.Module):
    """A layer: attention, then two dense layers with GELU; normed first."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.width, self.length = heads, width, length
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Any) -> Any:
        normed = self.norm1(x)
        query, key, value = (self._parted(layer(normed)) for layer in (self.query, self.key, self.value))
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(seen.transpose(1, 2).reshape(-1, self.length, self.width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x))))

    def _parted(self, x: Any) -> Any:
        return x.reshape(-1, self.length, self.heads, self.width // self.heads).transpose(1, 2)


class _Transformer(nn.Module):
    def __init__(self, case: Case, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        length, channels = case.shape
        self.embed = nn.Linear(channels, width)
        self.place = nn.Parameter(nn.init.normal_(nn.Embedding(length, width).weight.detach(), std=0.02))
        self.layers = nn.Sequential(*(_Encoder(width, heads, length) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, case.classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.layers(self.embed(x) + self.place)).mean(1))


class _Inverted(nn.Module):
    """Widen by 1 x 1, depthwise 3 x 3, narrow by 1 x 1; added to the input where the shapes are equal."""

    def __init__(self, given: int, wide: int, out: int, stride: int, act: type[nn.Module], *, norm: bool) -> None:
        super().__init__()
        self.adds = stride == 1 and given == out
        self.body = nn.Sequential(
            *_conv(given, wide, 1, 1, 1, norm=norm),
            act(),
            *_conv(wide, wide, 3, stride, wide, norm=norm),
            act(),
            *_conv(wide, out, 1, 1, 1, norm=norm),
        )

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.adds else self.body(x)


def _conv(given: int, out: int, kernel: int, stride: int, groups: int, *, norm: bool) -> list[Any]:
    conv = nn.Conv2d(given, out, kernel, stride, kernel // 2, groups=groups, bias=not norm)
    return [conv, nn.BatchNorm2d(out)] if norm else [conv]


def _mobile(case: Case, *, norm: bool) -> Any:
    return nn.Sequential(
        *_conv(case.shape[0], 16, 3, 2, 1, norm=norm),
        nn.Hardswish(),
        _Inverted(16, 64, 24, 2, nn.ReLU6, norm=norm),
        _Inverted(24, 72, 24, 1, nn.ReLU6, norm=norm),
        _Inverted(24, 96, 40, 2, nn.Hardswish, norm=norm),
        _Inverted(40, 120, 40, 1, nn.Hardswish, norm=norm),
        *_conv(40, 160, 1, 1, 1, norm=norm),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(160, case.classes),
    )


def _mlp(case: Case) -> Any:
    return nn.Sequential(nn.Linear(case.shape[0], 128), nn.ReLU(), nn.Linear(128, case.classes))


def _conv1d(case: Case) -> Any:
    return nn.Sequential(
        nn.Conv1d(6, 16, 7, stride=2),
        nn.ReLU(),
        nn.Conv1d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(32 * 11, 64),
        nn.ReLU(),
        nn.Linear(64, case.classes),
    )


def _cnn(case: Case) -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 128),
        nn.ReLU(),
        nn.Linear(128, case.classes),
    )


def _strided(case: Case) -> Any:
    layers: list[Any] = []
    for given, out in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(given, out, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, case.classes))


_NETS: Mapping[str, Callable[[Case], Any]] = MappingProxyType(
    {
        "mlp": _mlp,
        "conv1d": _conv1d,
        "cnn": _cnn,
        "strided": _strided,
        "mobile": lambda case: _mobile(case, norm=False),
        "mobile-frozen": lambda case: _mobile(case, norm=True),
        "transformer": _Transformer,
    }
)

"""Small versions of the nets that are fine-tuned on gateways, in torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

CLASSES = 4


@dataclass(frozen=True)
class Architecture:
    """A net and the data it takes.

    Args:
        make: builds it; called under a fixed seed.
        shape: of one sample.
        vocabulary: how many token numbers there are; 0 where the input is float.
        task: classes, or one value.
        frozen: name prefixes of the parameters that stay as they are.
        free: the axis, beside the batch, whose size may differ from batch to batch; 0 for none.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    vocabulary: int = 0
    task: Literal["cross-entropy", "mse"] = "cross-entropy"
    frozen: tuple[str, ...] = ()
    free: int = 0


class CausalBlock(nn.Module):
    """Two dilated convolutions that see the past only, and a shortcut."""

    def __init__(self, channels: int, width: int, dilation: int) -> None:
        super().__init__()
        self.left = 2 * dilation
        self.first = nn.Conv1d(channels, width, 3, dilation=dilation)
        self.second = nn.Conv1d(width, width, 3, dilation=dilation)
        self.shortcut = nn.Conv1d(channels, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.first(functional.pad(x, (self.left, 0))))
        inner = functional.relu(self.second(functional.pad(inner, (self.left, 0))))
        return functional.relu(inner + self.shortcut(x))


class Temporal(nn.Module):
    """A temporal convolution net whose last step is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(CausalBlock(3, 8, 1), CausalBlock(8, 8, 2), CausalBlock(8, 8, 4))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.blocks(x)[:, :, -1])
        return found


class Residual(nn.Module):
    """A block with batch normalisation, and a strided one with a projected shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.one = self._block(8, 8, 1)
        self.two = self._block(8, 12, 2)
        self.project = nn.Sequential(nn.Conv2d(8, 12, 1, stride=2, bias=False), nn.BatchNorm2d(12))
        self.head = nn.Linear(12, CLASSES)

    @staticmethod
    def _block(channels: int, width: int, stride: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.stem(x), 3, stride=2, padding=1)
        x = functional.relu(self.one(x) + x)
        x = functional.relu(self.two(x) + self.project(x))
        found: Tensor = self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return found


class SqueezeExcite(nn.Module):
    """Channels weighted by what they hold on the whole."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        squeezed = functional.relu(self.down(functional.adaptive_avg_pool2d(x, 1)))
        return x * functional.hardsigmoid(self.up(squeezed))


class Mobile(nn.Module):
    """Inverted residuals as MobileNetV3 has them: expand, depthwise, squeeze and excite, project."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()
        )
        self.inverted = nn.Sequential(
            nn.Conv2d(8, 16, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.Hardswish(),
            nn.Conv2d(16, 16, 5, padding=2, groups=16, bias=False),
            nn.BatchNorm2d(16),
            SqueezeExcite(16),
            nn.ReLU6(),
            nn.Conv2d(16, 8, 1, bias=False),
            nn.BatchNorm2d(8),
        )
        self.head = nn.Sequential(nn.Linear(8, 16), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(16, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.inverted(x)
        found: Tensor = self.head(x.mean((2, 3)))
        return found


class Bottleneck(nn.Module):
    """Down by strides, up by transposed convolutions with a skip connection, then one value."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv1d(2, 8, 4, stride=2, padding=1)
        self.deeper = nn.Conv1d(8, 12, 4, stride=2, padding=1)
        self.up = nn.ConvTranspose1d(12, 8, 4, stride=2, padding=1)
        self.out = nn.ConvTranspose1d(16, 2, 4, stride=2, padding=1)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = functional.leaky_relu(self.down(x))
        second = functional.elu(self.up(functional.leaky_relu(self.deeper(first))))
        rebuilt = self.out(torch.cat([first, second], 1))
        found: Tensor = self.head((rebuilt - x).abs().flatten(1))
        return found


class Skipping(nn.Module):
    """A U of convolutions: down by pooling, up by interpolation and by nearest neighbours, with skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.third, self.fourth = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(16, 6, 3, padding=1)
        self.last = nn.Conv2d(12, 2, 1)
        self.smooth, self.blocky = nn.Upsample(scale_factor=2, mode="bilinear"), nn.Upsample(scale_factor=2)
        self.head = nn.Linear(2 * 12 * 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        whole = functional.relu(self.first(x))
        half = functional.relu(self.second(functional.max_pool2d(whole, 2)))
        quarter = functional.relu(self.third(functional.avg_pool2d(half, 2)))
        up = functional.relu(self.fourth(torch.cat([self.smooth(quarter), half], 1)))
        found: Tensor = self.head(0.1 * (self.last(torch.cat([self.blocky(up), whole], 1)) - x).flatten(1))
        return found


class Encoder(nn.Module):
    """A transformer encoder over a window of measurements, with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 16)
        self.positions = nn.Parameter(torch.randn(1, 10, 16) * 0.1)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.layers(self.embed(x) + self.positions).mean(1))
        return found


class Recurrent(nn.Module):
    """A recurrent backbone under a dense head."""

    def __init__(self, kind: type[nn.GRU] | type[nn.LSTM]) -> None:
        super().__init__()
        self.backbone = kind(3, 8, batch_first=True)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.backbone(x)
        found: Tensor = self.head(states[:, -1])
        return found


class Text(nn.Module):
    """Token embeddings, averaged where there is a token, and classified."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, 8, padding_idx=0)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Sequential(nn.Linear(8, 12), nn.SiLU(), nn.Linear(12, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        there = (x != 0).unsqueeze(-1).float()
        mean = (self.table(x) * there).sum(1) / there.sum(1).clamp(min=1)
        found: Tensor = self.head(self.norm(mean))
        return found


class Tied(nn.Module):
    """A table that embeds tokens and, turned, scores the next one; a matrix that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.middle = nn.Embedding(12, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.tanh(self.middle(torch.tanh(self.middle(self.table(x).mean(1)))))
        return functional.linear(inner, self.table.weight)


class Sequence(nn.Module):
    """Token and position embeddings, an encoder layer, and a summary of sequences of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.positions = nn.Embedding(50, 16), nn.Embedding(64, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.layers(self.table(x) + self.positions(torch.arange(x.shape[1])))
        found: Tensor = self.head(torch.cat([inner.mean(1) + inner[:, -1], inner.amax(1) + inner[:, 1:].sum(1)], 1))
        return found


class Shared(nn.Module):
    """One encoder of both halves of a window, what differs between them, and a mask of what looks back."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.slopes = nn.Linear(3, 8), nn.PReLU(8)
        self.attend, self.norm = nn.Linear(8, 24, bias=False), nn.InstanceNorm1d(3)
        self.head = nn.Linear(8, CLASSES)

    def encoded(self, x: Tensor) -> Tensor:
        levelled = self.norm(x.transpose(1, 2)).transpose(1, 2)
        inner = self.slopes(self.embed(levelled).transpose(1, 2)).transpose(1, 2)
        query, key, value = self.attend(inner).unsqueeze(1).chunk(3, -1)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True).squeeze(1)
        found: Tensor = (inner + seen).square().mean(1)
        return found

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.encoded(x[:, :6]) - self.encoded(x[:, 6:]))
        return found


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 12), nn.PReLU(), nn.Linear(12, CLASSES)
    )


ARCHITECTURES: Mapping[str, Architecture] = {
    "mlp": Architecture(_mlp, (12,)),
    "temporal": Architecture(Temporal, (3, 24)),
    "residual": Architecture(Residual, (3, 12, 12)),
    "mobile": Architecture(Mobile, (3, 12, 12)),
    "bottleneck": Architecture(Bottleneck, (2, 16), task="mse"),
    "skipping": Architecture(Skipping, (2, 12, 12), task="mse"),
    "encoder": Architecture(Encoder, (10, 3)),
    "gru": Architecture(lambda: Recurrent(nn.GRU), (12, 3), frozen=("backbone.",)),
    "lstm": Architecture(lambda: Recurrent(nn.LSTM), (12, 3), frozen=("backbone.",)),
    "text": Architecture(lambda: Text(50), (9,), vocabulary=50),
    "tied": Architecture(Tied, (9,), vocabulary=12),
    "shared": Architecture(Shared, (12, 3)),
    "sequence": Architecture(Sequence, (12,), vocabulary=50, free=1),
    "large-text": Architecture(lambda: Text(600), (9,), vocabulary=600),
}


def made(name: str, seed: int = 0) -> Any:
    """The net as if it had been trained, in evaluation mode: no two tensors alike, running statistics moved."""
    torch.manual_seed(seed)
    net = ARCHITECTURES[name].make()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features) * 0.3
            module.running_var = torch.rand(module.num_features) + 0.5
    return net.eval()


def fused(net: Any) -> Any:
    """The net with batch normalisations in the convolutions before them, as exporters fold them."""
    for module in net.modules():
        if isinstance(module, nn.Sequential):
            for place in range(len(module) - 1):
                before, after = module[place], module[place + 1]
                if isinstance(before, nn.Conv2d) and isinstance(after, nn.BatchNorm2d):
                    module[place], module[place + 1] = fuse_conv_bn_eval(before, after), nn.Identity()
    return net


def example(name: str, rows: int, seed: int = 1, length: int = 0) -> Tensor:
    """Inputs of an architecture, (rows, *shape); ``length`` is the size of its free axis, if not as usual."""
    architecture = ARCHITECTURES[name]
    drawn = torch.Generator().manual_seed(seed)
    shape = [rows, *architecture.shape]
    if length:
        shape[architecture.free] = length
    if architecture.vocabulary:
        return torch.randint(0, architecture.vocabulary, shape, generator=drawn)
    return torch.randn(shape, generator=drawn)

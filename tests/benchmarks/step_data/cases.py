"""The nets that are compared, and what is aimed at; nothing here imports torch."""

from dataclasses import dataclass

BATCH = 32
RSS_GOAL = 0.40


@dataclass(frozen=True, slots=True)
class Case:
    """A net.

    Args:
        name: as on the command line.
        title: for people.
        shape: of a sample.
        classes: that it tells apart.
        goal: CPU time over torch's at most.
        rss_goal: peak resident size over torch's at most.
        threads_goal: CPU time over torch's at most, two threads each.
        alone: whether each step by itself is measured, too: a round takes several at once.
        steps: of a timed burst, some tenths of a second.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    classes: int
    goal: float
    steps: int
    rss_goal: float = RSS_GOAL
    threads_goal: float = 1.3
    alone: bool = False


CASES = (
    Case("mlp", "MLP 64-128-16", (64,), 16, 0.20, 400, alone=True),
    Case("conv1d", "conv1d 6-16-32, dense 64", (6, 100), 7, 0.90, 200),
    Case("cnn", "CNN 32-64, dense 128", (3, 32, 32), 10, 0.95, 8),
    Case("strided", "3 x 3 with stride 2: 32-64-128", (3, 32, 32), 10, 1.2, 40, rss_goal=0.50),
    Case("mobile", "inverted residuals, depthwise", (3, 32, 32), 10, 1.3, 15),
    Case("mobile-frozen", "the same with frozen BatchNorm", (3, 32, 32), 10, 1.3, 12),
    Case("transformer", "encoder, 2 layers of 64, 4 heads", (32, 6), 7, 1.3, 15),
)


def case(name: str) -> Case:
    """A case by name."""
    return next(entry for entry in CASES if entry.name == name)

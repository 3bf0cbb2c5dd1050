import os

import pytest

from edge_agent.training.descent import Place
from edge_agent.training.progress import Progress, ProgressPipe, Timekeeper, tell_over


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("setup_s", "share", "steps"),
    [(0.0, 1.0, 90), (10.0, 1.0, 75), (10.0, 0.5, 38), (50.0, 1.0, 1)],
    ids=["a tenth is kept back", "as long again as the setup and half more", "two halves follow", "no time at all"],
)
def test_time_for_what_comes_after_the_last_step_is_kept_back(setup_s: float, share: float, steps: int) -> None:
    clock = Clock()
    keeper = Timekeeper(5, 100.0, started_s=100.0, share=share, monotonic_s=clock)
    clock.now_s += setup_s
    done = 1
    while keeper.stepped(Place(done, done / 10, 0.5)):
        done += 1
        clock.now_s += 1.0
    assert done == pytest.approx(steps, abs=1)


def test_progress_is_told_at_most_once_a_second_however_short_the_steps() -> None:
    clock, told = Clock(), list[Progress]()
    keeper = Timekeeper(5, 100.0, started_s=100.0, tell=told.append, monotonic_s=clock)
    for step in range(1, 51):
        clock.now_s += 0.1
        keeper.stepped(Place(step, step / 20, 1 / step))
    assert [progress.steps for progress in told] == [11, 22, 33, 44]
    assert told[0].of_epochs == 5


def test_the_latest_line_counts_and_nothing_is_waited_for() -> None:
    reader, writer = os.pipe()
    pipe = ProgressPipe(reader)
    assert pipe.read() is None
    for step in range(3):
        tell_over(writer, Progress(steps=step, epochs=step / 2, of_epochs=4, loss=0.5))
    os.write(writer, b'no progress\n{"steps":-1}\n{"steps": 9')
    assert pipe.read() == Progress(steps=2, epochs=1.0, of_epochs=4, loss=0.5)
    os.write(writer, b',"epochs":4.0,"of_epochs":4,"loss":0.25}\n' + b"x" * 5000)
    assert pipe.read() == Progress(steps=9, epochs=4.0, of_epochs=4, loss=0.25)
    os.close(writer)
    assert pipe.read() == Progress(steps=9, epochs=4.0, of_epochs=4, loss=0.25)
    pipe.close()


def test_a_full_or_closed_pipe_costs_the_line_only() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    progress = Progress(steps=1, epochs=1.0, of_epochs=1, loss=1.0)
    for _ in range(5000):
        tell_over(writer, progress)
    os.close(reader)
    tell_over(writer, progress)
    os.close(writer)

from pathlib import Path

import pytest

from edge_agent.link.database import open_database
from edge_agent.link.outbox import Outbox
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.training_reports import PROGRESS_A_ROUND, TrainingReports
from edge_agent.training.progress import Progress
from tests.training.jobs import training_job


@pytest.mark.parametrize(
    ("duration_s", "told"), [(12.0, 2), (60.0, 11), (3600.0, PROGRESS_A_ROUND - 1)], ids=["short", "middling", "long"]
)
def test_progress_is_told_now_and_then_and_a_long_round_does_not_fill_the_log(
    tmp_path: Path, bundle: Bundle, duration_s: float, told: int
) -> None:
    outbox = Outbox(open_database(tmp_path / "a.db"), "gw-01", max_bytes=10**7, max_age_s=10**9)
    now = [0.0]
    reports = TrainingReports(outbox, monotonic_s=lambda: now[0])
    job = training_job(bundle, tmp_path, duration_s=duration_s)
    reports.began(duration_s)
    reports.progress(job, None)
    while now[0] + 0.5 < duration_s:
        now[0] += 0.5
        progress = Progress(steps=int(now[0] * 2), epochs=now[0], of_epochs=9, loss=1.0)
        reports.progress(job, progress)
        reports.progress(job, progress)
    assert outbox.depth == pytest.approx(told, abs=1)

import io
from pathlib import Path

from edge_agent.link.log_lines import LogStream


def test_lines_pass_through(tmp_path: Path) -> None:
    kept = io.StringIO()
    stream = LogStream(kept)
    stream.write("one\n")
    stream.flush()
    assert (kept.getvalue(), stream.lost_lines) == ("one\n", 0)


def test_a_full_disk_costs_lines_only() -> None:
    full = io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True)
    stream = LogStream(full)
    for _ in range(3):
        stream.write("lost\n")
        stream.flush()
    assert stream.lost_lines >= 3
    full.detach().close()


def test_a_closed_stream_costs_lines_only() -> None:
    closed = io.StringIO()
    closed.close()
    stream = LogStream(closed)
    stream.write("lost\n")
    stream.flush()
    assert stream.lost_lines >= 1

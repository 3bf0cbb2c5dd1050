import json

import numpy as np

from edge_agent.sinks.sink import NoSink, Sink, prediction_lines


def test_a_line_a_sample_and_null_for_what_is_not_finite() -> None:
    outputs = np.array([[0.5, 1.0], [np.nan, np.inf]], dtype=np.float32)
    lines = [json.loads(line) for line in prediction_lines(["a", "b"], [1.0, 2.5], outputs, "w")]
    assert lines == [
        {"id": "a", "time": 1.0, "output": [0.5, 1.0], "weights": "w"},
        {"id": "b", "time": 2.5, "output": [None, None], "weights": "w"},
    ]


def test_a_line_names_the_task_where_there_is_one() -> None:
    (line,) = prediction_lines(["a"], [1.0], np.zeros((1, 1), np.float32), "w", "press")
    assert json.loads(line) == {"id": "a", "time": 1.0, "output": [0.0], "weights": "w", "task": "press"}


def test_no_sink_takes_and_lives() -> None:
    sink: Sink = NoSink()
    sink.start()
    sink.write(["a"], [0.0], np.zeros((1, 2), dtype=np.float32), "w")
    assert sink.alive
    sink.stop(0.0)

"""FedAdam with running statistics: a variance stays one."""

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam

from edge_agent.wire.manifest import TrainableSpec
from server_bridge.flower.averaged_statistics import AveragedStatistics
from server_bridge.flower.records import prepare_process, set_message_id, to_record, to_tensors
from server_bridge.flower.strategies import StrategySettings, make_strategy

BASE = {"w": np.zeros(2, np.float32), "n.var": np.full(2, 0.05, np.float32)}
CARRIED = [
    TrainableSpec(name="w", dtype="float32", shape=[2]),
    TrainableSpec(name="n.var", dtype="float32", shape=[2], statistic=True),
]


def reply(node: int, variance: float, examples: int) -> Message:
    sent = Message(RecordDict({}), node, "train")
    set_message_id(sent, str(node))
    arrays = to_record({"w": np.ones(2, np.float32), "n.var": np.full(2, variance, np.float32)})
    metrics = MetricRecord({"num-examples": examples})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=sent)


def aggregated(strategy: FedAdam) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    strategy.current_arrays = dict(BASE)
    arrays, _ = strategy.aggregate_train(1, [reply(1, 0.01, 10), reply(2, 0.03, 30)])
    assert arrays is not None
    return to_tensors(arrays)


def test_statistics_are_averaged_and_the_rest_takes_adams_step() -> None:
    prepare_process()
    settings = StrategySettings(name="fedadam")
    plain, ours = make_strategy(settings), make_strategy(settings, carried=CARRIED)
    assert isinstance(plain, FedAdam)
    assert isinstance(ours, AveragedStatistics)
    stepped, kept = aggregated(plain), aggregated(ours)
    assert (stepped["n.var"] < 0).all()  # what would have been
    np.testing.assert_allclose(kept["n.var"], 0.025, rtol=1e-6)
    np.testing.assert_array_equal(kept["w"], stepped["w"])


def test_without_statistics_it_is_flowers_own() -> None:
    assert type(make_strategy(StrategySettings(name="fedadam"), carried=CARRIED[:1])) is FedAdam

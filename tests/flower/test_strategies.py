import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam

from edge_agent.errors import ConfigError, DataError
from server_bridge.cohorts.cohorter import CLMACohorter
from server_bridge.cohorts.cosine import CosineCohorter
from server_bridge.cohorts.family_cohorter import FamilyCohorter
from server_bridge.cohorts.selectors import AllParams
from server_bridge.flower.clma import CLMA
from server_bridge.flower.state import StrategyState, decode_state, encode_state
from server_bridge.flower.strategies import (
    StrategyName,
    StrategySettings,
    export_strategy,
    import_strategy,
    make_strategy,
)


@pytest.mark.parametrize(
    ("name", "kind"), [("fedavg", "FedAvg"), ("fedadam", "FedAdam"), ("clma", "CLMA"), ("clma-paper", "CLMA")]
)
def test_strategies_by_name(name: StrategyName, kind: str) -> None:
    strategy = make_strategy(StrategySettings(name=name, min_nodes=3))
    assert type(strategy).__name__ == kind
    assert (strategy.min_available_nodes, strategy.min_train_nodes) == (3, 3)


def test_parameters_arrive() -> None:
    clma = make_strategy(StrategySettings(cut=0.5, merge_threshold=0.01))
    assert isinstance(clma, CLMA)
    assert isinstance(clma.cohorter, CosineCohorter)
    assert (clma.cohorter.cut, clma.reconverged, clma.merge_cohorts_threshold) == (0.5, 0.01, None)
    default = make_strategy(StrategySettings())
    assert isinstance(default, CLMA)
    assert isinstance(default.cohorter, FamilyCohorter)
    paper = make_strategy(StrategySettings(name="clma-paper"))
    assert isinstance(paper, CLMA)
    assert isinstance(paper.cohorter, CLMACohorter)
    assert isinstance(paper.param_selector, AllParams)
    assert not paper.cohorter.center
    asking = make_strategy(StrategySettings(candidates=2, candidate_delta=0.3), flagged=lambda _: set())
    assert isinstance(asking, CLMA)
    adam = make_strategy(StrategySettings(name="fedadam", learning_rate=0.5, tau=0.1))
    assert isinstance(adam, FedAdam)
    assert (adam.eta, adam.tau) == (0.5, 0.1)


def test_wrong_settings_are_the_operators() -> None:
    with pytest.raises(ConfigError, match="'median' is unknown"):
        make_strategy(StrategySettings(name="median"))  # type: ignore[arg-type]  # what an operator may write
    with pytest.raises(ConfigError, match="cut"):
        make_strategy(StrategySettings(cut=3.0))
    with pytest.raises(ConfigError, match="'krum' is not for fedavg"):
        make_strategy(StrategySettings(name="fedavg", aggregation="krum"))
    with pytest.raises(ConfigError, match="hostile_share"):
        make_strategy(StrategySettings(aggregation="krum", hostile_share=0.5))
    with pytest.raises(ConfigError, match="candidates is not for fedavg"):
        make_strategy(StrategySettings(name="fedavg", candidates=1))
    with pytest.raises(ConfigError, match=r"needs strategy\.candidates"):
        make_strategy(StrategySettings(best_start=True))
    with pytest.raises(ConfigError, match="part_opposing is not for fedadam"):
        make_strategy(StrategySettings(name="fedadam", part_opposing=True))
    with pytest.raises(ConfigError, match="best_start is not for fedavg"):
        make_strategy(StrategySettings(name="fedavg", best_start=True))


def test_fedadams_moments_survive() -> None:
    adam = make_strategy(StrategySettings(name="fedadam"))
    assert isinstance(adam, FedAdam)
    adam.m_t, adam.v_t = {"w": np.arange(3.0)}, {"w": np.ones(3, np.float32)}
    fresh = make_strategy(StrategySettings(name="fedadam"))
    assert isinstance(fresh, FedAdam)
    import_strategy(fresh, decode_state(encode_state(export_strategy(adam))))
    assert fresh.m_t is not None
    assert fresh.v_t is not None
    assert fresh.m_t["w"].tolist() == [0, 1, 2]
    assert fresh.v_t["w"].dtype == np.float32


def test_a_fresh_state_fits_every_strategy_and_anothers_none() -> None:
    names: list[StrategyName] = ["fedavg", "fedadam", "clma"]
    for name in names:
        strategy = make_strategy(StrategySettings(name=name))
        import_strategy(strategy, export_strategy(strategy))
    other = StrategyState(document={"x": 1}, tensors={"q": {}})
    for name in names:
        with pytest.raises(DataError, match="is not"):
            import_strategy(make_strategy(StrategySettings(name=name)), other)

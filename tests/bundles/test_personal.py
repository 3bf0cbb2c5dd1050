from pathlib import Path

import pytest

from edge_agent.errors import DataError
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.personal import personal_names
from tests.bundles.nets import classified, mlp, save_npz


def test_patterns_choose_the_personal_tensors() -> None:
    assert personal_names(["a.w", "a.b", "n.scale"], ["n.*", "*.b"]) == {"n.scale", "a.b"}
    assert personal_names(["a.w"], []) == frozenset()


@pytest.mark.parametrize(
    ("patterns", "problem"), [(["c.*"], r"no trainable tensor matches 'c\.\*'"), (["*"], "every trainable tensor")]
)
def test_a_pattern_that_matches_nothing_or_all_is_refused(patterns: list[str], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        personal_names(["a.w", "a.b"], patterns)


def test_a_bundle_says_which_tensors_are_personal(tmp_path: Path) -> None:
    data = save_npz(tmp_path / "c.npz", **classified(mlp(), 100))
    settings = BuildSettings(trainable=["*"], loss="cross-entropy", personal=["b.*"], optimisers=["sgd"])
    bundle = build_bundle(mlp(), data, settings, tmp_path / "bundle")
    roles = {spec.name: spec.role for spec in bundle.manifest.trainable}
    assert roles == {"a.w": "shared", "a.b": "shared", "b.w": "personal", "b.b": "personal"}

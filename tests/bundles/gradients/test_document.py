"""The page on training names every rule, and no other."""

import itertools
import re
from pathlib import Path

from server_bridge.bundles.gradients.rules import FLAT, REFUSED, RULES
from tests.bundles.gradients.test_expansion import WRITTEN_OUT

PAGE = Path(__file__).parents[3] / "docs" / "training.md"


def part(begin: str, end: str) -> str:
    text = PAGE.read_text(encoding="utf-8").split("## Operators\n")[1].split("\n## ")[0]
    return text[text.index(begin) : text.index(end)]


def names(text: str) -> set[str]:
    return set(re.findall(r"`([A-Z]\w+)`", text))


def test_table_is_the_rule_table() -> None:
    lines = itertools.takewhile(bool, part("| operators", "**Written out.**").splitlines()[2:])
    listed = [name for line in lines for name in re.findall(r"`(\w+)`", line.split(" | ")[0])]
    assert sorted(listed) == sorted(RULES)


def test_flat_and_refused_operators_are_named() -> None:
    assert names(part("**Slope 0.**", "**Frozen.**")) == FLAT
    assert names(part("**Frozen.**", "**What a pattern")) >= set(REFUSED)


def test_operators_that_are_written_out_are_tested() -> None:
    tested = {drawn.op_type for case in WRITTEN_OUT for drawn in case.nodes}
    assert names(part("**Written out.**", "**Slope 0.**")) <= tested

"""``docs/safety.md`` names tests that exist, for every invariant."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")
INVARIANTS = 7
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def _sections() -> dict[int, str]:
    parts = re.split(r"^## (\d)\. ", PAGE, flags=re.MULTILINE)
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_every_test_that_the_page_names_exists() -> None:
    missing = []
    for path, name in NAMED.findall(PAGE):
        file = ROOT / path
        if not file.is_file() or (name and f"def {name}(" not in file.read_text(encoding="utf-8")):
            missing.append(f"{path}::{name}")
    assert missing == []


def test_every_invariant_has_tests_that_try_to_make_it_happen() -> None:
    sections = _sections()
    assert sorted(sections) == list(range(1, INVARIANTS + 1))
    few = {number for number, text in sections.items() if len([name for _, name in NAMED.findall(text) if name]) < 4}
    assert few == set()


def test_every_section_says_what_it_does_not_cover() -> None:
    assert {number for number, text in _sections().items() if "Not covered:" not in text} == set()

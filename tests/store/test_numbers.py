from pathlib import Path

import pytest

from server_bridge.store.numbers import BELIEVED_AT_MOST, HighestNumbers


def test_the_highest_number_of_each_name_is_found_again(tmp_path: Path) -> None:
    numbers = HighestNumbers(tmp_path / "numbers.json")
    assert numbers.is_lost
    for name, number in (("cohort", 3), ("cohort", 2), ("adaptation", 1)):
        numbers.note(name, number)
    again = HighestNumbers(tmp_path / "numbers.json")
    assert (again.is_lost, again.value("cohort"), again.value("adaptation"), again.value("other")) == (False, 3, 1, 0)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"schema": 1, "highest": {"cohort": -1}}',
        f'{{"schema": 1, "highest": {{"cohort": {BELIEVED_AT_MOST + 1}}}}}',
        f'{{"schema": 1, "highest": {{"cohort": {2**53}}}}}',
        f'{{"schema": 1, "highest": {{"cohort": {2**70}}}}}',
    ],
)
def test_what_cannot_be_believed_counts_as_absent_and_numbers_go_on(tmp_path: Path, content: str) -> None:
    path = tmp_path / "numbers.json"
    path.write_text(content)
    numbers = HighestNumbers(path)
    assert (numbers.is_lost, numbers.value("cohort")) == (True, 0)
    numbers.note("cohort", 5)
    assert HighestNumbers(path).value("cohort") == 5

"""When an overlay may be laid and when it is taken off, by the clock alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.runtime.adaptation_course import HOUR_S, LONGEST_REST_S, Course, CourseLimits

LIMITS = CourseLimits(max_swaps_per_hour=3, judge_within_s=600.0)


def test_swaps_of_any_hour_are_bounded() -> None:
    course = Course(LIMITS)
    course.begin(0.0)
    for now_s in (10.0, 20.0):
        assert course.barred(now_s) is None
        course.swap(now_s)
    assert course.barred(30.0) == "swaps"
    assert course.barred(HOUR_S - 0.1) == "swaps"
    assert course.barred(HOUR_S + 0.1) is None


def test_a_release_does_not_give_its_swaps_back() -> None:
    course = Course(LIMITS)
    for now_s in range(3):
        course.begin(float(now_s))
    course.released()
    assert course.barred(5.0) == "swaps"


def test_it_is_overdue_once_labels_stay_away_and_swaps_put_nothing_off() -> None:
    course = Course(LIMITS)
    assert not course.is_overdue(1e9)
    course.begin(0.0)
    course.swap(500.0)
    assert not course.is_overdue(600.0)
    assert course.is_overdue(600.1)
    course.judged(550.0)
    assert not course.is_overdue(1150.0)


def test_after_one_that_went_unjudged_labels_must_come_first() -> None:
    course = Course(LIMITS)
    course.begin(0.0)
    course.take_off("unjudged", 601.0)
    assert (course.barred(602.0), course.rests(602.0)) == ("unproven", False)
    course.judged(700.0)
    assert course.barred(701.0) is None
    course.take_off("unjudged", 1400.0)
    course.released()
    assert course.barred(1401.0) is None


@pytest.mark.parametrize("reason", ["worse", "not-finite", "damaged", "unfit"])
def test_harm_in_a_row_rests_longer_each_time_up_to_a_day(reason: str) -> None:
    course, now_s, rests = Course(LIMITS), 0.0, []
    for _ in range(20):
        course.take_off(reason, now_s)
        assert course.barred(now_s + 1) == "rests"
        rests.append(course.rests_until_s - now_s)
        now_s = course.rests_until_s
    assert rests[:4] == [600.0, 1200.0, 2400.0, 4800.0]
    assert rests[-1] == LONGEST_REST_S
    course.judged(now_s)
    course.take_off(reason, now_s)
    assert course.rests_until_s - now_s == 600.0
    assert course.dropped == {reason: 21}


@given(st.lists(st.tuples(st.sampled_from(["lay", "judged", "worse", "unjudged", "released"]), st.floats(0, 4000))))
def test_whatever_happens_no_hour_has_more_swaps_and_nothing_serves_unjudged_for_longer(
    steps: list[tuple[str, float]],
) -> None:
    course, now_s, serves, laid, known_s = Course(LIMITS), 0.0, False, list[float](), 0.0
    for what, wait_s in steps:
        now_s += wait_s
        if serves and course.is_overdue(now_s):
            assert now_s - known_s > LIMITS.judge_within_s
            course.take_off("unjudged", now_s)
            serves = False
        assert not serves or now_s - known_s <= LIMITS.judge_within_s
        if what == "lay" and course.barred(now_s) is None:
            (course.swap if serves else course.begin)(now_s)
            known_s = known_s if serves else now_s
            serves = True
            laid.append(now_s)
        elif what == "judged":
            course.judged(now_s)
            known_s = now_s
        elif what in ("worse", "unjudged"):
            course.take_off(what, now_s)
            serves = False
        elif what == "released":
            course.released()
            serves = False
        assert sum(one > now_s - HOUR_S for one in laid) <= LIMITS.max_swaps_per_hour

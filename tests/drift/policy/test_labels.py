from edge_agent.drift.policy.labels import LabelFacts, label_words, standing
from edge_agent.drift.policy.verdict import Labels, PolicyParams

PARAMS = PolicyParams(label_rows=100, label_delay_s=60.0)


def test_labels_are_waited_for_before_they_are_called_scarce() -> None:
    assert standing(PARAMS, LabelFacts()) is Labels.DECIDE
    assert standing(PARAMS, LabelFacts(rows_since=100)) is Labels.DECIDE
    assert standing(PARAMS, LabelFacts(rows_since=101, judged=True)) is Labels.SCARCE


def test_late_and_biased_labels_do_not_decide() -> None:
    assert standing(PARAMS, LabelFacts(delay_p90_s=60.0)) is Labels.DECIDE
    assert standing(PARAMS, LabelFacts(delay_p90_s=60.5)) is Labels.SCARCE
    assert standing(PARAMS, LabelFacts(delay_p90_s=60.5, bias="low confidence")) is Labels.BIASED


def test_the_facts_are_said() -> None:
    facts = LabelFacts(150, True, 200, 50, 5.0, 90.0, "low confidence")
    assert label_words(PARAMS, facts).split("; ") == [
        "50 of 200 (25%) labelled in time",
        "half within 5 s, nine in ten within 90 s",
        "no labelled batch was judged for 150 samples",
        "labelling is biased: low confidence",
    ]
    assert label_words(PARAMS, LabelFacts(judged=True)) == "labels come"
    assert LabelFacts().share is None

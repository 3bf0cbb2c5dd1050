from edge_agent.wire.messages import FlagAccuracy, FlagAttribution, FlagEvent, FlagLabels, FlagTest, Overlay
from server_bridge.cli.flag_words import flag_line, flag_words
from server_bridge.store.flags import StoredFlag

LEAST = FlagEvent(
    flag_id="1" * 64,
    monitor="loss-rise",
    firing=1,
    bundle="2" * 64,
    weights="3" * 64,
    weights_version=1,
    cohort="root",
    first_drifted_sample="s4",
    first_drifted_time_s=4.0,
    statistic=1.5,
    threshold=0.25,
    trainable_samples=1,
)


def test_a_flag_of_an_earlier_agent_says_what_it_has() -> None:
    stored = StoredFlag("gw-1", 0.0, "open", None, None, LEAST)
    assert flag_line(stored) == "gw-1: open: loss-rise 1.5 over 0.25, since sample s4"


def test_a_flag_that_was_judged_with_an_overlay_says_so() -> None:
    flag = LEAST.model_copy(update={"overlay": Overlay(digest="4" * 64, batches=7)})
    assert flag_words(flag).split("; ")[1] == "with an overlay of 7 batches on the release"


def test_the_evidence_is_said_in_physical_units() -> None:
    tests = [
        FlagTest(monitor=name, statistic=9.0, threshold=7.0, warning_threshold=5.0) for name in ("a", "label-free")
    ]
    flag = LEAST.model_copy(
        update={
            "severity": 0.625,
            "severity_by": "loss",
            "shift": "covariate",
            "tests": tests,
            "attributions": [
                FlagAttribution(name="inlet", before=12.5, now=17.25, unit="degC"),
                FlagAttribution(name="flow", before=1.0, now=2.0, measure="spread"),
            ],
            "labels": FlagLabels(served=512, labelled=128, delay_median_s=60.0, bias="low confidence"),
            "accuracy": FlagAccuracy(value=0.5, low=0.375, high=0.625, expected=0.9),
        }
    )
    assert flag_words(flag).split("; ")[1:] == [
        "severity 0.62 by loss",
        "covariate shift",
        "inlet 12.5 -> 17.25 degC, flow (spread) 1 -> 2",
        "128 of 512 labelled, half within 60 s, biased: low confidence",
        "accuracy estimated 0.500 (0.375 to 0.625)",
        "beside it label-free 9 of 7",
    ]
    refused = flag.model_copy(update={"accuracy": FlagAccuracy(refused="outside of what is known")})
    assert "accuracy not estimated: outside of what is known" in flag_words(refused)

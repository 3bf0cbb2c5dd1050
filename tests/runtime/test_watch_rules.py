from pathlib import Path

import pytest

from edge_agent.config import MonitorSection
from edge_agent.drift.loss_rise import MONITOR_NAME, LossRiseParams, published
from edge_agent.drift.policy.season import SeasonParams
from edge_agent.drift.policy.verdict import PolicyParams
from edge_agent.errors import ConfigError
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.watch_rules import rules_of_release, season_of, watch_rules
from edge_agent.wire.manifest import MonitorSpec, PromiseSpec
from tests.runtime.watched import watched_bundle

RULE = LossRiseParams(gamma=0.7, batch_size=24, clip=5.0, warmup_batches=3)


@pytest.fixture
def calibrated(bundle: Bundle) -> Bundle:
    spec = MonitorSpec(parameters=RULE.to_parameters(), batch_size=RULE.batch_size, false_alarm_rate=0.001)
    manifest = bundle.manifest.model_copy(update={"monitors": {MONITOR_NAME: spec, "of-the-future": spec}})
    return Bundle(Path(bundle.path), bundle.digest, manifest)


@pytest.mark.parametrize("rule", ["default", "calibrated", "loss-rise"])
def test_the_default_of_a_bundle_of_before_is_its_calibrated_rise(calibrated: Bundle, rule: str) -> None:
    rules = watch_rules(MonitorSection.model_validate({"rule": rule, "gamma": 0.2}), calibrated)
    assert (rules.labelled.monitor.params, rules.labelled.monitor.rate, rules.served) == (RULE, 0.001, ())
    assert rules.policy == PolicyParams()


def test_the_default_is_the_level_where_the_bundle_has_it(bundle: Bundle) -> None:
    rules = watch_rules(MonitorSection(), watched_bundle(bundle))
    assert [one.name for one in rules.monitors] == ["loss-level", "label-free"]
    assert rules.arrivals is not None
    assert watch_rules(MonitorSection(rule="loss-rise"), watched_bundle(bundle)).labelled.monitor.name == "loss-rise"


@pytest.mark.parametrize(
    ("rate", "lowest", "rule", "label_free"),
    [
        (2e-3, 2e-3, "loss-level", "unlabelled"),
        (0.05, 0.05, "loss-rise", "never"),
        (0.05, 0.01, "loss-level", "unlabelled"),
        (2e-3, 0.05, "loss-level", "never"),
    ],
    ids=["few false alarms", "a reference too short for fewer", "as many as were asked for", "fewer aimed at"],
)
def test_a_monitor_that_had_to_promise_too_much_is_not_the_default_and_only_warns(
    bundle: Bundle, rate: float, lowest: float, rule: str, label_free: str
) -> None:
    whole = watched_bundle(bundle)
    promise = PromiseSpec(lowest_rate=lowest)
    update = {"false_alarm_rate": rate, "promise": promise}
    specs = whole.manifest.monitors
    changed = {name: specs[name].model_copy(update=update) for name in ("loss-level", "label-free")}
    manifest = whole.manifest.model_copy(update={"monitors": specs | changed})
    rules = watch_rules(MonitorSection(), Bundle(whole.path, whole.digest, manifest))
    assert (rules.labelled.monitor.name, rules.policy.label_free) == (rule, label_free)
    told = watch_rules(MonitorSection(rule="loss-level", label_free="always"), Bundle(whole.path, "", manifest))
    assert (told.labelled.monitor.name, told.policy.label_free) == ("loss-level", "always")


def test_the_published_rule_takes_the_operators_gamma_and_the_bundles_batch_and_resets_at_once(
    calibrated: Bundle,
) -> None:
    rules = watch_rules(MonitorSection(rule="published", gamma=0.2), calibrated)
    assert rules.labelled.monitor.params == published(batch_size=24, gamma=0.2)
    assert (rules.policy.calm_batches, rules.policy.cooldown_batches) == (1, 0)


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ("calibrated", "loss-rise"),
        ("published", "loss-rise"),
        ("loss-rise", "loss-rise"),
        ("loss-level", "loss-level"),
    ],
)
def test_a_bundle_without_the_monitor_is_named_with_the_remedy(bundle: Bundle, rule: str, named: str) -> None:
    with pytest.raises(ConfigError, match=rf"'tiny' has no monitor '{named}' \(it has none\).*calibration data"):
        watch_rules(MonitorSection.model_validate({"rule": rule}), bundle)


def test_the_settings_make_the_policy(calibrated: Bundle) -> None:
    section = MonitorSection(label_free="off", label_rows=7, label_delay_s=9.0, calm_batches=2, cooldown_batches=0)
    assert watch_rules(section, calibrated).policy == PolicyParams(2, 0, "never", 7, 9.0)


def test_seasons_begin_where_the_hour_or_the_week_does() -> None:
    assert season_of(MonitorSection()) is None
    assert season_of(MonitorSection(season="hour-of-day", season_offset_s=5.0)) == SeasonParams(86_400.0, 24, 5.0)
    shift = MonitorSection(season="period", season_period_s=28_800.0, season_parts=4)
    assert season_of(shift) == SeasonParams(28_800.0, 4)
    week = season_of(MonitorSection(season="day-of-week"))
    assert week is not None
    monday_1970_01_05_s = 4 * 86_400.0
    assert (week.bins, week.period_s, week.offset_s) == (7, 604_800.0, monday_1970_01_05_s)


def test_a_release_without_the_monitor_that_was_asked_for_is_watched_by_its_default(calibrated: Bundle) -> None:
    section = MonitorSection(rule="loss-level")
    with pytest.raises(ConfigError, match="loss-level"):
        watch_rules(section, calibrated)
    assert rules_of_release(section, calibrated).labelled.monitor.name == MONITOR_NAME
    with pytest.raises(ConfigError):
        rules_of_release(section, Bundle(calibrated.path, "", calibrated.manifest.model_copy(update={"monitors": {}})))

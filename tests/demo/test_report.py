import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from server_bridge.demo.facts import CLMA, FEDAVG
from server_bridge.demo.report import key_figures, render_page, write_report
from server_bridge.demo.verdict import judge
from tests.demo.made_up import made_up_facts


def test_the_json_has_the_issues_keys(tmp_path: Path) -> None:
    facts = made_up_facts()
    write_report(tmp_path / "new", facts, judge(facts))
    report = json.loads((tmp_path / "new" / "report.json").read_text())
    assert len(report["gateways"]) == 10
    first = report["gateways"][0]
    assert {"id", "family", "flagged_s", "cohort", "model_version", "accuracy"} <= set(first)
    assert set(first["accuracy"]) == {"before", "drifted", "final"}
    assert report["false_flags"] == []
    assert report["families_separated"] is True
    assert {"stationary_final", "drifted_final"} <= set(report["arms"]["clma"])
    assert report["arms"]["fedavg"]["stationary_final"] < report["arms"]["clma"]["stationary_final"]
    assert report["refused_releases"] == 20
    assert set(report["bytes"]) == {"up", "down_published"}
    assert report["agent_rss_mb"] == 117.4


def test_the_page_is_self_contained() -> None:
    facts = made_up_facts()
    page = render_page(facts, judge(facts))
    assert "<script" not in page
    assert not re.search(r"(src|href)=", page)
    assert "@import" not in page
    assert not re.search(r"url\(", page)
    HTMLParser().feed(page)


def test_every_picture_is_well_formed_and_named() -> None:
    facts = made_up_facts()
    pictures = re.findall(r"<svg.*?</svg>", render_page(facts, judge(facts)), re.S)
    assert len(pictures) == 1 + len(facts.arms[CLMA].gateways) + 2
    for picture in pictures:
        assert ElementTree.fromstring(picture).get("aria-label")


def test_a_failed_run_says_so_first() -> None:
    facts = replace(made_up_facts(), reasserted=False, bad_releases=())
    page = render_page(facts, judge(facts))
    assert "did not hold" in page
    assert "repaired itself.</h1>" not in page


def test_a_run_without_the_second_arm_still_gives_a_page() -> None:
    facts = made_up_facts()
    alone = replace(facts, arms={CLMA: facts.arms[CLMA]})
    assert "the FedAvg arm did not run" in render_page(alone, judge(alone))


def test_harm_by_averaging_is_claimed_only_where_there_was_some() -> None:
    facts = made_up_facts()
    harmed = render_page(facts, judge(facts))
    assert "drags along gateways that had no problem" in harmed
    spared = replace(facts, arms={**facts.arms, FEDAVG: facts.arms[CLMA]})
    page = render_page(spared, judge(spared))
    assert "drags along" not in page
    assert "hardly lose by it here" in page
    (figure,) = [one for one in key_figures(spared) if "untouched" in one.label]
    assert figure.good
    assert figure.label.endswith(f"unharmed; plain averaging leaves {figure.value}")


def test_a_gateway_that_lost_is_not_called_unharmed() -> None:
    facts = made_up_facts()
    arm = facts.arms[CLMA]
    lost = [replace(one, final=one.drifted if one.drifts else replace(one.final, right=0)) for one in arm.gateways]
    (figure,) = [
        one
        for one in key_figures(replace(facts, arms={**facts.arms, CLMA: replace(arm, gateways=tuple(lost))}))
        if "untouched" in one.label
    ]
    assert not figure.good
    assert "unharmed" not in figure.label


def test_tables_scroll_by_themselves_on_narrow_screens() -> None:
    facts = made_up_facts()
    page = render_page(facts, judge(facts))
    assert page.count("<table>") == page.count('<div class="wide">\n<table>') == 2

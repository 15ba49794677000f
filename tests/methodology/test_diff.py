from agent_eval.methodology import Change, diff, load


def paths(a: str, b: str, *, with_status: bool = False) -> list[str]:
    return [c.path for c in diff(load(a), load(b), with_status=with_status)]


def test_1_3_adds_the_penalty_and_its_rules() -> None:
    changes = diff(load("1.2.0"), load("1.3.0"))
    assert changes[0] == Change("penalties.repeatability_tested=false", None, "10 points off the composite")
    assert {c.path.split(".")[0] for c in changes[1:]} == {"rules", "changes", "repeatability_guidance"}


def test_1_2_adds_six_templates() -> None:
    changes = diff(load("1.1.0"), load("1.2.0"))
    new = ("personal_assistant_v1", "research_v1", "marketing_v1", "x_sales_v1", "x_content_creation_v1")
    added = [f"templates.{slug}" for slug in (*new, "x_hr_recruiting_v1")]
    assert [c.path for c in changes if c.before is None] == added
    assert [c.path for c in changes if c.before is not None] == ["repeatability_guidance", "changes"]


def test_1_1_makes_tests_and_disclosures_mandatory() -> None:
    changes = {c.path: (c.before, c.after) for c in diff(load("1.0.0"), load("1.1.0"))}
    assert changes["required_tests.hallucination.enforcement"] == ("warn", "bars_publication")
    assert changes["required_disclosures.u3_scope"] == (None, "required")
    assert changes["dimensions.U4.needs_test"] == ("none", "error_injection")
    assert changes["dimensions.U1.anchors_origin"] == ("ours", "published")
    assert not [path for path in changes if "anchors." in path or path.startswith("templates")]


def test_date_and_status_come_last_and_only_when_asked_for() -> None:
    without = paths("1.2.0", "1.3.0")
    assert paths("1.2.0", "1.3.0", with_status=True) == [*without, "published", "status", "superseded_by"]


def test_a_version_does_not_differ_from_itself() -> None:
    assert paths("1.3.0", "1.3.0", with_status=True) == []


def test_the_reverse_swaps_before_and_after() -> None:
    there = diff(load("1.0.0"), load("1.3.0"))
    back = diff(load("1.3.0"), load("1.0.0"))
    assert {(c.path, c.before, c.after) for c in there} == {(c.path, c.after, c.before) for c in back}


def test_one_changed_anchor_is_one_change() -> None:
    m = load("1.3.0")
    data = m.model_dump(mode="json", by_alias=True)
    data["dimensions"][1]["anchors"]["3"] = "New words."
    changed = type(m).model_validate(data)
    before = m.dimensions[1].anchors.three
    assert diff(m, changed) == (Change("dimensions.U2.anchors.3", before, "New words."),)


def test_another_order_of_criteria_is_a_change() -> None:
    m = load("1.3.0")
    data = m.model_dump(mode="json", by_alias=True)
    data["templates"][0]["criteria"].reverse()
    (change,) = diff(m, type(m).model_validate(data))
    assert change.path == "templates.customer_service_v1.criteria.(order)"
    assert change.before == "accuracy, completeness, usefulness"
    assert change.after == "usefulness, completeness, accuracy"

"""The published versions hold the published facts."""

from fractions import Fraction
from pathlib import Path

import pytest
import yaml

from agent_eval.methodology import Methodology, Registry, load
from agent_eval.methodology.registry import PACKAGED

VERSIONS = ("1.0.0", "1.1.0", "1.2.0", "1.3.0")
TESTS = ("standardised_task", "hallucination", "error_injection")
CRITERIA = {
    "customer_service_v1": ("accuracy", "completeness", "usefulness"),
    "automation_workflow_v1": ("accuracy", "completeness", "usefulness"),
    "coding_development_v1": ("correctness", "completeness", "code_quality"),
    "data_analysis_v1": ("query_accuracy", "visualisation_fit", "insight_quality"),
    "personal_assistant_v1": ("accuracy", "completeness", "usefulness"),
    "research_v1": ("accuracy", "source_quality", "synthesis_quality"),
    "marketing_v1": ("accuracy", "brand_fit", "usefulness"),
    "x_sales_v1": ("accuracy", "completeness", "usefulness"),
    "x_content_creation_v1": ("accuracy", "brief_adherence", "craft"),
    "x_hr_recruiting_v1": ("accuracy", "fairness_compliance", "usefulness"),
}
FOUR = tuple(CRITERIA)[:4]
every_version = pytest.mark.parametrize("version", VERSIONS)
from_1_1 = pytest.mark.parametrize("version", VERSIONS[1:])


def composite(m: Methodology, sum_u: int, sum_d: int) -> Fraction:
    universal, domain = Fraction(sum_u, 30) * 100, Fraction(sum_d, 75) * 100
    return Fraction(m.weights.universal) * universal + Fraction(m.weights.domain) * domain


@pytest.mark.parametrize(
    ("version", "published", "status", "successor", "n_templates"),
    [
        ("1.0.0", "2026-03-31", "superseded", "1.1.0", 4),
        ("1.1.0", "2026-04-01", "superseded", "1.2.0", 4),
        ("1.2.0", "2026-04-01", "superseded", "1.3.0", 10),
        ("1.3.0", "2026-04-09", "current", None, 10),
    ],
)
def test_a_version_has_its_date_status_successor_and_templates(
    version: str, published: str, status: str, successor: str | None, n_templates: int
) -> None:
    m = load(version)
    assert (m.version, m.published, m.status, m.superseded_by) == (version, published, status, successor)
    assert len(m.templates) == n_templates


@every_version
def test_forty_parts_universal_and_sixty_parts_domain(version: str) -> None:
    m = load(version)
    assert (Fraction(m.weights.universal), Fraction(m.weights.domain)) == (Fraction(2, 5), Fraction(3, 5))
    assert composite(m, 30, 75) == 100
    assert composite(m, 6, 15) == 20
    # 0.4 × 23/30 × 100 + 0.6 × 58/75 × 100 = 92/3 + 232/5 = (460 + 696)/15
    assert composite(m, 23, 58) == Fraction(460 + 696, 15)


@every_version
def test_from_1_1_tests_and_disclosures_bar_publication_and_before_they_only_warn(version: str) -> None:
    m, is_first = load(version), version == "1.0.0"
    enforced = ("warn", "ours") if is_first else ("bars_publication", "published")
    required = [(t.slug, t.enforcement, t.enforcement_origin) for t in m.required_tests]
    assert required == [(slug, *enforced) for slug in TESTS]
    assert m.required_disclosures == (() if is_first else ("u3_scope", "repeatability_tested"))
    needed = {d.id: d.needs_test for d in m.dimensions if d.needs_test}
    assert needed == ({} if is_first else {"U4": "error_injection"})
    assert {d.anchors_origin for d in m.dimensions} == {enforced[1]}
    assert m.rules["averaging"].origin == enforced[1]
    guidance = m.repeatability_guidance
    assert (guidance is None, m.references == ()) == (is_first, is_first)
    assert guidance is None or (guidance.origin, guidance.verified) == ("published", False)


def test_only_1_3_penalises_untested_repeatability() -> None:
    assert [len(load(v).penalties) for v in VERSIONS] == [0, 0, 0, 1]
    m = load("1.3.0")
    points = [m.penalty_points("repeatability_tested", tested) for tested in (True, False, None)]
    assert points == [0, 10, None]
    assert load("1.2.0").penalty_points("repeatability_tested", None) == 0


@every_version
def test_templates_have_the_published_criteria_in_order(version: str) -> None:
    m = load(version)
    expected = CRITERIA if len(m.templates) == 10 else {slug: CRITERIA[slug] for slug in FOUR}
    assert {t.slug: tuple(c.id for c in t.criteria) for t in m.templates} == expected
    assert tuple(t.slug for t in m.templates) == tuple(expected)


def test_each_template_says_whose_it_is() -> None:
    origins = {t.slug: (t.origin, t.content_origin) for t in load("1.3.0").templates}
    published = {slug: ("published", "published" if slug in FOUR else "ours") for slug in CRITERIA}
    assert origins == published | {s: ("ours", "ours") for s in CRITERIA if s.startswith("x_")}


def test_a_category_is_its_slug_without_prefix_and_number() -> None:
    m = load("1.3.0")
    assert [t.category for t in m.templates] == [s.removeprefix("x_").removesuffix("_v1") for s in CRITERIA]
    assert m.template_for("sales") is m.templates[7]
    assert load("1.1.0").template_for("sales") is None


def test_every_false_premise_scenario_says_how_each_criterion_reads_there() -> None:
    for template in load("1.3.0").templates:
        d4 = template.scenarios[3]
        assert set(d4.readings) == {c.id for c in template.criteria}, template.slug


def test_a_criterion_that_does_not_fit_has_a_reading() -> None:
    by_slug = {t.slug: t for t in load("1.3.0").templates}
    for slug, scenario, criterion in (
        ("data_analysis_v1", 1, "visualisation_fit"),
        ("data_analysis_v1", 5, "query_accuracy"),
        ("data_analysis_v1", 5, "visualisation_fit"),
        ("coding_development_v1", 4, "code_quality"),
        ("research_v1", 1, "synthesis_quality"),
    ):
        assert criterion in by_slug[slug].scenarios[scenario - 1].readings, (slug, scenario)


def test_five_anchors_are_five_different_sentences() -> None:
    m = load("1.3.0")
    parts = [(str(d.id), d.anchors) for d in m.dimensions]
    parts += [(c.id, c.anchors) for t in m.templates for c in t.criteria]
    for name, anchors in parts:
        words = anchors.by_rating()
        assert list(words) == ["5", "4", "3", "2", "1"]
        assert len(set(words.values())) == 5, name
        assert all(text.endswith(".") for text in words.values()), name


def test_the_same_question_has_the_same_words_in_every_version() -> None:
    versions = [load(v) for v in VERSIONS]
    dimensions = [[(d.id, d.name, d.question, d.anchors) for d in m.dimensions] for m in versions]
    assert dimensions == [dimensions[0]] * 4
    by_slug = [{t.slug: t for t in m.templates} for m in versions]
    for slug in CRITERIA:
        texts = [templates[slug] for templates in by_slug if slug in templates]
        assert texts == [texts[0]] * len(texts)
        assert len(texts) == (4 if slug in FOUR else 2)


def test_versions_that_ask_the_same_share_the_rubric_and_differ_in_scoring() -> None:
    a, b = load("1.2.0"), load("1.3.0")
    assert a.rubric_hash == b.rubric_hash
    assert a.scoring_hash != b.scoring_hash


TAGS = {
    "task completion", "multi-step reasoning", "autonomy", "error handling", "repeatability", "domain-specific evaluation",
    "scoring framework", "benchmark design", "enterprise workflows", "safety and policy", "web interaction",
}  # fmt: skip


@from_1_1
def test_fourteen_references_are_tagged_and_nobody_claims_to_have_checked_them(version: str) -> None:
    references = load(version).references
    assert len({r.title for r in references}) == len(references) == 14
    assert {tag for r in references for tag in r.informs} == TAGS
    assert all(r.informs and r.description for r in references)
    assert not any(r.verified for r in references)
    assert references == load("1.1.0").references


def test_references_are_as_published_and_our_check_stands_beside_them() -> None:
    references = load("1.1.0").references
    assert all(r.authors and r.venue and r.year for r in references)
    published = {(r.title.partition(":")[0], r.authors, r.venue, r.year) for r in references}
    assert {
        ("AgencyBench", "Li, Y., et al.", "arXiv", 2025),
        ("REALM-Bench", "Wang, Z., et al.", "arXiv", 2025),
        ("CORE-Bench", "Siegel, Z., et al.", "arXiv", 2025),
        ("On the Reliability of LLM Benchmarks", "Alzahrani, N., Barnett, S., et al.", "arXiv", 2025),
    } <= published
    assert sum(r.our_check is not None for r in references) == 10


def test_a_corrected_reference_changes_no_hash() -> None:
    m = load("1.3.0")
    corrected = m.references[0].model_copy(update={"year": 2023, "verified": True})
    changed = m.model_copy(
        update={"references": (corrected, *m.references[1:]), "repeatability_guidance": None}
    )
    assert (changed.content_hash, changed.scoring_hash) == (m.content_hash, m.scoring_hash)


def test_change_lists() -> None:
    assert [len(load(v).changes) for v in VERSIONS] == [0, 7, 1, 3]


@pytest.mark.parametrize("path", sorted(PACKAGED.glob("*.yaml")), ids=lambda p: p.name)
def test_a_plain_yaml_reader_finds_the_same(path: Path) -> None:
    plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert Methodology.model_validate(plain) == Registry.read().get(path.stem)

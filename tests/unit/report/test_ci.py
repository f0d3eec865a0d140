"""Sections, annotations, summaries and JUnit XML for CI systems."""

from io import BytesIO
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, LogEvidence, Status
from stoker.diagnose.verdict import diagnose
from stoker.model.build import BuildRecord, BuildRequest, BuildStage, StageEnd, StageResult
from stoker.outside.streams import CiSystem, ci_system
from stoker.report.ci import Sections, annotation, build_summary, junit, run_summary
from subjects import plan

KILLED = diagnose(
    read_log(BytesIO(b"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n")), file="x.log"
)


def unexplained(*lines: str) -> Diagnosis:
    evidence = tuple(LogEvidence(line=n, text=line) for n, line in enumerate(lines, 1))
    return Diagnosis(status=Status.UNKNOWN, unexplained=evidence)


def result(stage: BuildStage, end: StageEnd, why: str = "") -> StageResult:
    return StageResult(stage=stage, end=end, wall_s=2.0, log="x.log", why=why)


def record(*stages: StageResult, error: str | None = None) -> BuildRecord:
    return BuildRecord(
        stoker="1", started=0.0, request=BuildRequest(source="."), options={}, tree="/src",
        work="/work", plan=plan(), environment={}, stages=stages, error=error,
    )  # fmt: skip


FAILED = record(
    result(BuildStage.CONFIGURE, StageEnd.SKIPPED),
    result(BuildStage.CODEGEN, StageEnd.DONE),
    result(BuildStage.COMPILE, StageEnd.FAILED, why="ninja stopped <&\x00>"),
    error="compile failed",
)


@pytest.mark.parametrize(
    ("variables", "system"),
    [
        ({"GITHUB_ACTIONS": "true"}, CiSystem.GITHUB),
        ({"GITLAB_CI": "true"}, CiSystem.GITLAB),
        ({"GITHUB_ACTIONS": "", "CI": "true"}, None),
    ],
)
def test_the_system_is_known_by_its_variables(
    variables: dict[str, str], system: CiSystem | None
) -> None:
    assert ci_system(variables) is system


def test_sections() -> None:
    results = [result(BuildStage.COMPILE, end, why="new") for end in StageEnd]
    lines = {each.end: Sections(None).text(each, 1.6) for each in results}
    assert lines == {
        StageEnd.RUNNING: "  compile    started (new)\n",
        StageEnd.DONE: "  compile    done in 2 s\n",
        StageEnd.SKIPPED: "  compile    unchanged\n",
        StageEnd.FAILED: "  compile    failed after 2 s\n",
        StageEnd.INTERRUPTED: "  compile    interrupted after 2 s\n",
    }
    texts = {}
    for system in CiSystem:
        sections = Sections(system)
        texts[system] = {each.end: sections.text(each, 1.6) for each in results}
        assert texts[system][StageEnd.SKIPPED] == lines[StageEnd.SKIPPED]
    github, gitlab = texts[CiSystem.GITHUB], texts[CiSystem.GITLAB]
    assert github[StageEnd.RUNNING] == "::group::compile    started (new)\n"
    assert github[StageEnd.DONE] == f"::endgroup::\n{lines[StageEnd.DONE]}"
    start = "\x1b[0Ksection_start:2:stoker_compile[collapsed=true]\r\x1b[0K"
    assert gitlab[StageEnd.RUNNING] == f"{start}{lines[StageEnd.RUNNING]}"
    end = "\x1b[0Ksection_end:2:stoker_compile\r\x1b[0K"
    assert gitlab[StageEnd.DONE] == f"{end}{lines[StageEnd.DONE]}"


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("/w/src/a.cpp:12:5: error: what", "file=src/a.cpp,line=12"),
        ("src/b.cu(7): error: what", "file=src/b.cu,line=7"),
        ("/other/c.h:3: fatal error: no.h: No such file", "file=/other/c.h,line=3"),
        ("something else", ""),
    ],
)
def test_an_annotation_points_at_the_source(line: str, where: str) -> None:
    text = annotation(unexplained(line), "/w")
    place = f",{where}" if where else ""
    assert text == f"::error title=The build failed{place}::{line}\n"


def test_an_annotation_names_the_cause() -> None:
    text = annotation(KILLED)
    assert KILLED.findings[0].title in text
    assert f"`stoker diagnose --explain {KILLED.findings[0].cause}`" in text
    assert annotation(Diagnosis(status=Status.NOTHING_FAILED)) == ""


@given(st.text(min_size=1))
def test_an_annotation_is_one_line_whatever_was_printed(text: str) -> None:
    told = annotation(unexplained(f"x {text} a%,::b"))
    assert told.count("\n") == 1
    assert "\r" not in told
    assert "%25" in told


def test_secrets_are_not_annotated() -> None:
    token = "ghp_" + "a" * 36
    assert token not in annotation(unexplained(f"error: cannot use {token}"))
    assert token not in run_summary(f"curl -H {token}", 1, None, unexplained(f"x {token}"))


def test_a_summary_cannot_be_broken_by_what_was_printed() -> None:
    text = build_summary(FAILED, unexplained("</pre><img src=x> | `x`"))
    assert "failed" in text
    assert "| compile | failed | 2 s |" in text
    assert "| configure | skipped |  |" in text
    assert "&lt;/pre&gt;&lt;img" in text
    assert "<img" not in text
    assert KILLED.findings[0].title in run_summary("ninja", 1, None, KILLED)


def test_junit_has_a_case_for_each_stage() -> None:
    suite = ElementTree.fromstring(junit(FAILED, KILLED))
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    assert [case.get("name") for case in suite] == ["configure", "codegen", "compile"]
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "ninja stopped <&\N{REPLACEMENT CHARACTER}>"
    assert "signal 9" in (failure.text or "")

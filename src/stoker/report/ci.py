"""Builds as lines of text, and for CI: sections that fold, a summary page, annotations and JUnit
XML. Pure.
"""

import re
from collections.abc import Sequence
from posixpath import relpath
from xml.etree import ElementTree

from stoker.diagnose.values import Diagnosis, LogEvidence
from stoker.govern.client.summary import summary_text
from stoker.model.build import BuildRecord, StageEnd, StageResult
from stoker.model.html import html_text
from stoker.model.runs import RunSummary
from stoker.model.secrets import redact
from stoker.model.value import duration
from stoker.outside.streams import CiSystem, xml_text

_WIDTH = max(len("configure"), len("prepare"))
_LONGEST = 400  # characters of a line of evidence
_MOST_EVIDENCE = 10  # lines
# "a.cpp:12:5: error:" as gcc and clang write it, "a.cu(12): error:" as nvcc does.
_LOCATION = re.compile(
    r"(?P<file>[^\s:(),]+\.\w+)(?::(?P<line>\d+)(?::\d+)?:|\((?P<nvcc>\d+)\):) (?:fatal )?error"
)


def stage_line(result: StageResult) -> str:
    """Return a line such as ``  compile    done in 12 s``."""
    match result.end:
        case StageEnd.RUNNING:
            what = f"started ({result.why})"
        case StageEnd.DONE:
            what = f"done in {duration(result.wall_s)}"
        case StageEnd.SKIPPED:
            what = "unchanged"
        case StageEnd.FAILED | StageEnd.INTERRUPTED:
            what = f"{result.end} after {duration(result.wall_s)}"
    return f"  {result.stage:<{_WIDTH}}  {what}\n"


def end_line(record: BuildRecord, folder: str) -> str:
    """Return the end of a successful build: its time and its run folder."""
    seconds = sum(result.wall_s for result in record.stages)
    return f"stoker: built in {duration(seconds)}; record and logs in {folder}\n"


class Sections:
    """Writes the lines of stages, so that the log of CI can fold what a stage printed."""

    def __init__(self, system: CiSystem | None):
        self._system = system
        self._open = False  # a stage that is skipped has no section

    def text(self, result: StageResult, now: float) -> str:
        """``now``: seconds since the epoch."""
        line = stage_line(result)
        if self._system is None:
            return line
        if result.end is StageEnd.RUNNING:
            self._open = True
            if self._system is CiSystem.GITHUB:
                return f"::group::{line.strip()}\n"
            name = f"stoker_{result.stage}[collapsed=true]"
            return f"\x1b[0Ksection_start:{now:.0f}:{name}\r\x1b[0K{line}"
        was_open, self._open = self._open, False
        if not was_open:
            return line
        if self._system is CiSystem.GITHUB:
            return f"::endgroup::\n{line}"
        return f"\x1b[0Ksection_end:{now:.0f}:stoker_{result.stage}\r\x1b[0K{line}"


def annotation(diagnosis: Diagnosis, workspace: str = "") -> str:
    """Return the cause of a failed build as a workflow command of GitHub; empty if nothing failed.

    ``workspace``: the folder that paths are shown relative to.
    """
    title, evidence = "The build failed", diagnosis.unexplained
    message = ""
    for finding in diagnosis.findings[:1]:
        title, evidence = finding.title, finding.evidence
        message = f"`stoker diagnose --explain {finding.cause}` tells what to do\n"
    lines = _lines(evidence)
    if not lines:
        return ""
    properties = {"title": title, **_location(lines, workspace)}
    words = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::error {words}::{_data(message + lines[0])}\n"


def _location(lines: Sequence[str], workspace: str) -> dict[str, str]:
    for line in lines:
        if found := _LOCATION.search(line):
            file = found["file"]
            if workspace and file.startswith(f"{workspace}/"):
                file = relpath(file, workspace)
            return {"file": file, "line": found["line"] or found["nvcc"]}
    return {}


def _lines(evidence: Sequence[LogEvidence]) -> list[str]:
    return [redact(each.text.strip())[:_LONGEST] for each in evidence[:_MOST_EVIDENCE]]


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def build_summary(record: BuildRecord, diagnosis: Diagnosis | None) -> str:
    """Return Markdown about a build, for the summary page of a job."""
    source = record.plan.source
    name = f"{source.name} {source.version or ''}".strip() if source else "build"
    end = "failed" if record.error else "succeeded"
    lines = [f"### stoker build: {html_text(name)} for {html_text(record.plan.name)} {end}", ""]
    lines += ["| stage | result | time |", "|---|---|---|"]
    for stage in record.stages:
        took = "" if stage.end is StageEnd.SKIPPED else duration(stage.wall_s)
        lines.append(f"| {stage.stage} | {stage.end} | {took} |")
    lines += ["", *_preformatted([path.rpartition("/")[2] for path in record.outputs])]
    return "\n".join([*lines, *_figures(record.summary), *_cause(diagnosis)]) + "\n"


def run_summary(
    command: str, status: int, summary: RunSummary | None, diagnosis: Diagnosis | None
) -> str:
    """Return Markdown about a governed command, for the summary page of a job."""
    end = f"failed with status {status}" if status else "succeeded"
    lines = [f"### stoker run: {end}", "", *_preformatted([redact(command)])]
    return "\n".join([*lines, *_figures(summary), *_cause(diagnosis)]) + "\n"


def cause_summary(diagnosis: Diagnosis) -> str:
    """Return Markdown about the cause of a failure, for the summary page of a job."""
    return "\n".join(_cause(diagnosis)) + "\n"


def _figures(summary: RunSummary | None) -> list[str]:
    return _preformatted(summary_text(summary).splitlines()) if summary and summary.steps else []


def _cause(diagnosis: Diagnosis | None) -> list[str]:
    if diagnosis is None:
        return []
    for finding in diagnosis.findings[:1]:
        fixes = [fix.text for fix in finding.advice[:1]]
        commands = [command for fix in finding.advice[:1] for command in fix.commands]
        return [
            f"**Cause: {html_text(finding.title)}**",
            "",
            *_preformatted(_lines(finding.evidence)),
            *(f"{html_text(text)}\n" for text in fixes),
            *_preformatted(commands),
        ]
    return _preformatted(_lines(diagnosis.unexplained))


def _preformatted(lines: Sequence[str]) -> list[str]:
    """Return text that Markdown shows as it is, whatever it contains."""
    return (
        ["<pre>" + html_text("\n".join(line or " " for line in lines)) + "</pre>", ""]
        if lines
        else []
    )


def junit(record: BuildRecord, diagnosis: Diagnosis | None) -> bytes:
    """Return JUnit XML with a test case for each stage: unchanged stages are skipped."""
    ends = [stage.end for stage in record.stages]
    failed = (StageEnd.FAILED, StageEnd.INTERRUPTED)
    suite = ElementTree.Element(
        "testsuite",
        name=xml_text(f"stoker build {record.plan.name}"),
        tests=str(len(ends)),
        failures=str(sum(end in failed for end in ends)),
        skipped=str(ends.count(StageEnd.SKIPPED)),
        errors="0",
        time=f"{sum(stage.wall_s for stage in record.stages):.3f}",
    )
    for stage in record.stages:
        name, took = str(stage.stage), f"{stage.wall_s:.3f}"
        case = ElementTree.SubElement(
            suite, "testcase", classname="stoker.build", name=name, time=took
        )
        if stage.end in failed:
            message = xml_text(redact(stage.why) or str(stage.end))
            failure = ElementTree.SubElement(case, "failure", message=message)
            failure.text = xml_text(_failure(diagnosis))
        elif stage.end is StageEnd.SKIPPED:
            ElementTree.SubElement(case, "skipped", message="its inputs are unchanged")
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _failure(diagnosis: Diagnosis | None) -> str:
    if diagnosis is None:
        return ""
    found = diagnosis.findings[:1]
    evidence = found[0].evidence if found else diagnosis.unexplained
    return "\n".join([*(finding.title for finding in found), *_lines(evidence)])

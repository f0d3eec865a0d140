import re
import subprocess
from io import BytesIO
from pathlib import Path

import pytest
from failure_index import examples

from stoker.diagnose.about import About
from stoker.diagnose.cause_pages import cause_list, cause_page
from stoker.diagnose.pages import diagnosis_page
from stoker.diagnose.sieve import read_log
from stoker.diagnose.texts import fix_script, short_diagnosis
from stoker.diagnose.values import Diagnosis, FailedRun, Status
from stoker.diagnose.verdict import diagnose
from stoker.knowledge.failures import failures
from stoker.outside.terminal import Page, rendered


def of_log(text: str) -> Diagnosis:
    return diagnose(read_log(BytesIO(text.encode())), file="build.log")


LOG = "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n"
KILLED = of_log(LOG)


def printed(page: Page) -> str:
    return rendered(page, 100)


def test_a_finding_has_evidence_fix_echoes_and_links() -> None:
    text = printed(diagnosis_page(KILLED))
    assert "build.log:1: nvcc error" in text
    assert "Fix   Without stoker, run fewer jobs at once" in text
    assert "https://github.com/" in text
    assert "Note" in text


def test_an_unknown_one_says_so_and_shows_the_error() -> None:
    text = printed(diagnosis_page(of_log("mill: error: what\n")))
    assert "unknown" in text
    assert "build.log:1: mill: error: what" in text


def test_a_failure_without_any_evidence_is_still_said() -> None:
    assert printed(diagnosis_page(Diagnosis(status=Status.UNKNOWN))).startswith(
        "It failed. Its output"
    )


def test_a_line_of_standard_input_has_no_file() -> None:
    text = printed(diagnosis_page(diagnose(read_log(BytesIO(b"a.cpp:1:2: error: what\n")))))
    assert "  line 1: a.cpp:1:2: error: what" in text


def test_brackets_of_a_log_are_no_markup() -> None:
    assert "[bold]a.cpp:1:2: error: [/red]" in printed(
        diagnosis_page(of_log("[bold]a.cpp:1:2: error: [/red]"))
    )


def test_the_short_form_has_cause_evidence_and_fix() -> None:
    text = short_diagnosis(KILLED)
    assert re.search(r"\(oom-nvcc, [89]\d% sure\)", text)
    assert "build.log:1: nvcc error" in text
    assert "  Fix: Without stoker" in text
    assert short_diagnosis(of_log("fine")) == ""


def test_the_script_of_any_cause_is_one_dash_can_read_and_deletes_nothing(tmp_path: Path) -> None:
    """Windows commands are for another shell. All scripts are read as one."""
    whole = ""
    for name, log in examples():
        text = fix_script(of_log(log))
        assert "\nset -e\n" in text
        assert not re.search(r"^(?!#).*(?<!-)\b(?:rm|rmdir|git clean)\b", text, re.MULTILINE), name
        assert not re.search(r"^\s*source\b", text, re.MULTILINE), name
        whole += f"# {name}\n{text}\n"
    (tmp_path / "fixes.sh").write_text(whole)
    subprocess.run(["dash", "-n", tmp_path / "fixes.sh"], check=True)


def script_of(command: str) -> str:
    about = About(run=FailedRun(command=command))
    return fix_script(diagnose(read_log(BytesIO(LOG.encode())), about=about))


def test_the_other_fixes_of_a_script_are_comments() -> None:
    assert re.search(r"^#   export MAX_JOBS=\d+ ", script_of("ninja"), re.MULTILINE)


def test_a_script_builds_again_with_the_command_of_the_run_or_the_user(tmp_path: Path) -> None:
    script = tmp_path / "fix.sh"
    script.write_text(re.sub(r"stoker run .*?-- ", "", script_of("echo built")))
    for words, expected in (((), "built\n"), (("echo", "other"), "other\n")):
        done = subprocess.run(["dash", script, *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, expected)


def test_a_script_stops_at_the_first_error(tmp_path: Path) -> None:
    script = tmp_path / "fix.sh"
    script.write_text(script_of("echo built").replace("set -e\n", "set -e\nfalse\n"))
    done = subprocess.run(["dash", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("name", list(failures()))
def test_a_cause_has_a_page(name: str) -> None:
    assert failures()[name].title.split()[0] in printed(cause_page(failures()[name]))


def test_all_causes_are_listed() -> None:
    text = printed(cause_list(failures().values()))
    assert all(name in text for name in failures())

import subprocess
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from rich.console import Console

from stoker.diagnose.diagnosing import (
    cause_list,
    cause_page,
    diagnosis_page,
    fix_script,
    reference,
    short_diagnosis,
)
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, Status
from stoker.diagnose.verdict import diagnose
from stoker.knowledge.failures import failures

CAUSES = Path(__file__).parents[3] / "docs" / "reference" / "causes.md"


def of_log(text: str) -> Diagnosis:
    return diagnose(read_log(BytesIO(text.encode())), file="build.log")


KILLED = of_log("nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n")


def printed(renderable: object) -> str:
    stream = StringIO()
    Console(file=stream, width=100).print(renderable)
    return stream.getvalue()


def test_the_reference_in_the_docs_is_up_to_date() -> None:
    """If not: stoker diagnose --explain --markdown > docs/reference/causes.md."""
    assert CAUSES.read_text() == reference(list(failures().values()))


def test_a_finding_has_evidence_fix_echoes_and_links() -> None:
    text = printed(diagnosis_page(KILLED))
    assert "build.log:1: nvcc error" in text
    assert "$ stoker run -- " in text
    assert "https://github.com/" in text
    assert "Not" in text


def test_an_unknown_one_says_so_and_shows_the_error() -> None:
    text = printed(diagnosis_page(of_log("a.cpp:1:2: error: what\n")))
    assert "unknown" in text
    assert "build.log:1: a.cpp:1:2: error: what" in text


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


def test_the_short_form_names_the_page() -> None:
    assert "stoker diagnose --explain oom-nvcc" in short_diagnosis(KILLED)
    assert short_diagnosis(of_log("fine")) == ""


def test_the_script_of_any_cause_is_one_a_shell_can_read(tmp_path: Path) -> None:
    """Windows commands are for another shell."""
    script = tmp_path / "fix.sh"
    for cause in failures().values():
        for example in cause.example[:1]:
            script.write_text(fix_script(of_log(example.log)))
            checked = subprocess.run(["sh", "-n", script], capture_output=True, check=False)
            assert checked.returncode == 0, (cause.name, checked.stderr.decode())


def test_the_other_fixes_of_a_script_are_comments() -> None:
    script = fix_script(KILLED)
    assert "\nstoker run -- " in script
    assert "\n# export MAX_JOBS=" in script


@pytest.mark.parametrize("name", list(failures()))
def test_a_cause_has_a_page(name: str) -> None:
    assert failures()[name].title.split()[0] in printed(cause_page(failures()[name]))


def test_all_causes_are_listed() -> None:
    text = printed(cause_list(failures().values()))
    assert all(name in text for name in failures())

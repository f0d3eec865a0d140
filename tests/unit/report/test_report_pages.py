"""The other pages: findings, doctor, options, variants, errors."""

import pytest
from msgspec.structs import replace

from governed_steps import record
from stoker.govern.history.past_runs import steps_page
from stoker.model.errors import CommandError, UsageError
from stoker.model.finding import Finding, Severity
from stoker.model.govern import CompileMode, StepRecord
from stoker.model.runs import Attempt, Outcome
from stoker.model.source import ListedOption, OptionKind
from stoker.model.variant import Backend, Variant
from stoker.outside.streams import error_text
from stoker.outside.terminal import Group, finding_lines, rendered
from stoker.plan.shown import doctor_page, verdict
from stoker.plan.words import Explained, GpuEntry, KnownWords, NamedEntry, Served
from stoker.plan.words_page import explained_page, known_words_page, options_page
from subjects import cmake_option, cmake_tree, doctor, plan, pytorch_tree


def finding(severity: Severity, **parts: object) -> Finding:
    return Finding(name="x", severity=severity, title="the title", **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("severity", "mark"),
    [
        (Severity.OK, "ok"),
        (Severity.NOTE, "note"),
        (Severity.WARNING, "warn"),
        (Severity.ERROR, "ERROR"),
    ],
)
def test_a_finding_is_readable_without_colour(severity: Severity, mark: str) -> None:
    text = rendered(Group(*finding_lines(finding(severity, evidence="seen at /x"))))
    assert text.split()[:3] == [mark, "the", "title"]
    assert "seen at /x" in text


def test_fixes_stand_on_lines_of_their_own_ready_to_paste() -> None:
    fixes = ("apt-get install -y g++", "pip install 'a[b]>=1'")
    lines = rendered(Group(*finding_lines(finding(Severity.ERROR, fix=fixes)))).splitlines()
    assert [line.strip() for line in lines[1:]] == [f"$ {fix}" for fix in fixes]


def test_markup_in_a_finding_is_text() -> None:
    odd = Finding(name="x", severity=Severity.ERROR, title="[b]a[/c]", evidence="[/]", fix=("[d]",))
    text = rendered(Group(*finding_lines(odd)))
    for part in ("[b]a[/c]", "[/]", "[d]"):
        assert part in text


@pytest.mark.parametrize(
    ("severities", "words"),
    [
        ([], "This plan can run."),
        ([Severity.OK, Severity.NOTE], "This plan can run."),
        ([Severity.WARNING], "This plan can run: 1 warning."),
        ([Severity.WARNING, Severity.WARNING], "This plan can run: 2 warnings."),
        ([Severity.ERROR], "This plan cannot run: 1 error."),
        ([Severity.ERROR] * 2 + [Severity.WARNING], "This plan cannot run: 2 errors, 1 warning."),
    ],
)
def test_the_verdict(severities: list[Severity], words: str) -> None:
    assert verdict(tuple(finding(severity) for severity in severities)) == words


def test_the_doctors_page_holds_every_finding_and_ends_in_the_verdict() -> None:
    findings = doctor("cu130-sm90", tree=pytorch_tree())
    text = rendered(doctor_page(plan("cu130-sm90", tree=pytorch_tree()), findings))
    assert text.startswith("cu130-sm90 for linux-x86_64")
    for found in findings:
        assert found.title in text
    assert text.splitlines()[-1] == verdict(findings)


def test_options_with_condition_and_place() -> None:
    dependent = cmake_option(
        "USE_CUDNN",
        kind=OptionKind.DEPENDENT,
        condition="USE_CUDA",
        otherwise="OFF",
        line=42,
        within="NOT WIN32",
    )
    listed = (ListedOption(option=dependent, variable="USE_CUDNN"),)
    text = rendered(options_page(pytorch_tree(), listed))
    assert "USE_CUDNN = ON" in text
    assert "CMakeLists.txt:42" in text
    assert "if USE_CUDA, else OFF" in text
    assert "declared where NOT WIN32" in text
    assert "about USE_CUDNN" in text
    assert text.splitlines()[-1] == "1 option of torch 2.6.0"


def test_an_option_that_the_front_end_loses_is_said_of_pytorch_only() -> None:
    listed = (ListedOption(option=cmake_option("ODD"), variable=None),)
    assert "not passed on" in rendered(options_page(pytorch_tree(), listed))
    assert "not passed on" not in rendered(options_page(cmake_tree(), listed))


def test_notes_of_the_tree_and_odd_texts() -> None:
    tree = cmake_tree(notes=("CMakeLists.txt:3: ends within a [command]",), version=None)
    option = cmake_option("A", default="", help="[/red] :smile: text")
    text = rendered(options_page(tree, (ListedOption(option=option, variable=None),)))
    assert "ends within a [command]" in text
    assert "[/red] :smile: text" in text
    assert "A = (empty)" in text
    assert "None" not in text


CATALOGUE = KnownWords(
    gpus=(
        GpuEntry(
            word="sm90", backend=Backend.CUDA, arch="9.0", names=("H100",), cuda=("11.8", "13.4")
        ),
        GpuEntry(word="gfx942", backend=Backend.ROCM, arch="gfx942", names=("MI300X",), cuda=()),
    ),
    cpus={"avx2": "Intel Haswell (2013)"},
    blas=("mkl", "openblas"),
    features={"nccl": "NCCL: collectives"},
    platforms=("linux-x86_64",),
    named=(
        NamedEntry(
            name="server",
            variant="h100",
            description="[our] :fire: machines",
            where="stoker.toml:3",
        ),
    ),
)


def test_the_catalogue_holds_every_word() -> None:
    text = rendered(known_words_page(CATALOGUE))
    for word in ("sm90", "H100", "gfx942", "MI300X", "avx2", "mkl", "nccl", "linux-x86_64"):
        assert word in text
    assert "11.8 to 13.4" in text
    assert "stoker.toml:3" in text


def test_one_variant_explained() -> None:
    explained = Explained(
        name="cu130-sm90+ptx-avx512",
        label="cu130.sm90.ptx.avx512",
        variant=Variant(),
        gpus=(
            Served(arch="9.0", names=("H100", "H200"), by="cubin"),
            Served(arch="10.1", names=(), by="ptx"),
        ),
        cpu_needs=("avx512f", "fma"),
        cpu_dispatch="AVX512",
    )
    text = rendered(explained_page(explained))
    assert "+cu130.sm90.ptx.avx512" in text
    assert "H100, H200" in text
    assert "CPU must have: avx512f fma" in text
    assert "AVX512" in text


def test_an_error_with_its_place_and_hints() -> None:
    error = UsageError("unknown key 'x'", where="stoker.toml:3", hints=["one", "two"])
    assert error_text(error) == "stoker: stoker.toml:3: unknown key 'x'\n  one\n  two\n"


def test_a_failed_command_shows_the_end_of_its_output() -> None:
    error = CommandError("`cmake` ended with status 1", output="first\nlast", hints=["look"])
    assert error_text(error) == (
        "stoker: `cmake` ended with status 1\n    first\n    last\n  look\n"
    )


def test_the_steps_of_a_run_have_a_column_of_modes_if_there_were_any() -> None:
    def page(*records: StepRecord) -> list[str]:
        attempts = [Attempt(record=r, started=0.0, outcome=Outcome.DONE) for r in records]
        return rendered(steps_page(tuple(attempts), most=9)).splitlines()

    plain = record("a.cpp")
    kernel = replace(plain, step=replace(plain.step, threads=4), mode=CompileMode.THREADS)
    assert "mode" not in page(plain)[0]
    head, *lines = page(plain, replace(plain, mode=CompileMode.LEAN), kernel)
    column = slice(head.index("mode"), head.index("step"))
    assert [line[column].strip() for line in lines] == ["", "lean", "4 threads"]

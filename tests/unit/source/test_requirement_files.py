"""Requirement files as pip reads them."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.source.files import TreeFiles
from stoker.source.requirements import read_requirements


def read(folder: Path, text: str) -> tuple[tuple[str, ...], list[str]]:
    (folder / "requirements.txt").write_text(text)
    files = TreeFiles(folder)
    return read_requirements(files, "requirements.txt"), files.notes


def test_comments_markers_and_options(tmp_path: Path) -> None:
    text = """
        # needed
        numpy
        pyyaml>=6 # for code
        sympy==1.13.1 ; python_version >= "3.9"
        --extra-index-url https://example.invalid/simple
        -c constraints.txt
        ninja == 1.11 --hash=sha256:abc
        pkg[extra] @ https://example.invalid/a.whl#sha256=1
        numpy
    """
    assert read(tmp_path, text) == (
        (
            "numpy",
            "pyyaml>=6",
            'sympy==1.13.1; python_version >= "3.9"',
            "ninja==1.11",
            "pkg[extra] @ https://example.invalid/a.whl#sha256=1",
        ),
        [],
    )


def test_continued_lines(tmp_path: Path) -> None:
    assert read(tmp_path, "a\\\n>=1 \\\r\n  , <2\nb\\") == (("a<2,>=1",), [])


def test_included_files_once_each(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/one.txt").write_text("-r two.txt\none")
    (tmp_path / "sub/two.txt").write_text("two\n--requirement=../requirements.txt")
    assert read(tmp_path, "-r sub/one.txt\n-r sub/two.txt\nzero") == (("two", "one", "zero"), [])


def test_what_cannot_be_used_is_noted(tmp_path: Path) -> None:
    assert read(tmp_path, "good\nnot good at all\n-r missing.txt\n-r ../outside.txt\n") == (
        ("good",),
        [
            "requirements.txt:2: not a requirement: not good at all",
            "requirements.txt:3: missing.txt is not in the tree",
            "requirements.txt:4: ../outside.txt is not in the tree",
        ],
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])) | st.text("-r .\\\n#=a;'\"[]"))
def test_no_text_is_too_strange(tmp_path: Path, text: str) -> None:
    requirements, _ = read(tmp_path, text)
    assert len(set(requirements)) == len(requirements)

"""Manual pages and completions of the wheel, and the examples of the README."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Stoker
from stoker.cli import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "share"
    subprocess.run([sys.executable, str(ROOT / "release/share.py"), str(folder)], check=True)
    return folder


def page(share: Path, name: str) -> str:
    """Return a page without roff's escapes of hyphens."""
    return (share / f"man/man1/{name}.1").read_text().replace("\\-", "-")


def test_every_command_has_a_page_that_the_main_page_lists(share: Path) -> None:
    main = page(share, "stoker")
    for name in COMMANDS:
        assert f"stoker-{name} (1)" in main
        assert f".B stoker {name}\n" in page(share, f"stoker-{name}")


def test_subcommands_have_pages(share: Path) -> None:
    assert ".B stoker toolchain install\n" in page(share, "stoker-toolchain-install")
    assert "stoker-toolchain-install (1)" in page(share, "stoker-toolchain")


def test_a_page_has_every_option_and_keeps_the_lines_of_examples(share: Path) -> None:
    text = page(share, "stoker-run")
    for option in ("--memory SIZE", "--keep-free SIZE", "--summary FILE"):
        assert f".TP\n.B {option}\n" in text
    examples = text.split(".nf\n")[1].split(".fi")[0]
    assert "stoker run -- ninja -C build\n" in examples


def test_pages_show_backslashes_and_leading_dots_as_they_are(share: Path) -> None:
    for path in (share / "man/man1").iterdir():
        for line in path.read_text().splitlines():
            if line.startswith((".", "'")):
                assert line.split()[0] in {".TH", ".SH", ".B", ".BR", ".PP", ".TP", ".nf", ".fi"}
            assert "\b" not in line


@pytest.mark.parametrize(
    ("shell", "name"),
    [
        ("bash", "bash-completion/completions/stoker"),
        ("zsh", "zsh/site-functions/_stoker"),
        ("fish", "fish/vendor_completions.d/stoker.fish"),
    ],
)
def test_completions_are_what_the_command_prints(
    share: Path, stoker: Stoker, shell: str, name: str
) -> None:
    assert (share / name).read_text().strip() == stoker(
        "help", "--completion", shell
    ).stdout.strip()


def test_the_readme_shows_what_the_commands_print(stoker: Stoker) -> None:
    text = (ROOT / "README.md").read_text()
    examples = re.findall(r"^\$ stoker (.+)\n((?:(?!\$ |```).*\n)+)", text, re.MULTILINE)
    assert examples
    for words, shown in examples:
        done = stoker(*shlex.split(words))
        printed = (done.stdout + done.stderr).splitlines()
        assert [line for line in shown.splitlines() if line not in (*printed, "…")] == [], words

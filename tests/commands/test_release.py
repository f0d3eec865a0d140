"""Manual pages and completions of the wheel, and the examples of the README."""

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import Need, Stoker
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


def test_every_command_has_a_page_that_a_page_above_lists(share: Path) -> None:
    for above, name in (*(("stoker", name) for name in COMMANDS), ("stoker-toolchain", "install")):
        assert f"{above}-{name} (1)" in page(share, above)
        assert f".B {above.replace('-', ' ')} {name}\n" in page(share, f"{above}-{name}")


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


@pytest.mark.slow
def test_a_plain_install_of_a_checkout_has_the_pages(tmp_path: Path, need: Need) -> None:
    """`man` finds them beside the folder of the environment's programs."""
    need("cmake")
    need("ninja")
    need("git")
    tracked = subprocess.check_output(["git", "-C", ROOT, "ls-files", "-z"], text=True)
    for name in tracked.rstrip("\0").split("\0"):
        if name.startswith(("src/", "launcher/", "release/")) or "/" not in name:
            (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "tree" / name)
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", *words, tmp_path / "tree"], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        pages = [name for name in archive.namelist() if "/data/share/man/man1/" in name]
    assert any(name.endswith("/stoker-build.1") for name in pages)


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
    printed = stoker("help", "--completion", shell).stdout.strip()
    assert "_STOKER_COMPLETE" in printed
    assert (share / name).read_text().strip() == printed


def test_the_readme_shows_what_the_commands_print(stoker: Stoker) -> None:
    text = (ROOT / "README.md").read_text()
    examples = re.findall(r"^\$ stoker (.+)\n((?:(?!\$ |```).*\n)+)", text, re.MULTILINE)
    assert examples
    for words, shown in examples:
        done = stoker(*shlex.split(words))
        printed = (done.stdout + done.stderr).splitlines()
        assert [line for line in shown.splitlines() if line not in (*printed, "…")] == [], words

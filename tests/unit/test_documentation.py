"""The documentation agrees with the code: commands, settings, statuses, links, file names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.cli import COMMANDS
from stoker.model.errors import ExitStatus
from stoker.settings.declared import OPTIONS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"stoker {name}" not in text] == []


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    folders = [ROOT, *(path for path in (ROOT / "src/stoker").glob("**/") if path.is_dir())]
    names = re.findall(r"`([\w./-]+\.(?:py|c|toml|yml))`", text)
    assert len(names) > 20
    missing = [name for name in names if not any((folder / name).exists() for folder in folders)]
    assert [name for name in missing if name not in {"setup.py", "stoker.toml"}] == []


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs/reference/settings.md").read_text()
    rows = [
        f"| `{option.name}` | `{option.flag}` | `{option.variable}` | {option.help} |"
        for option in OPTIONS.values()
    ]
    assert [row for row in rows if row not in text] == []


def test_every_exit_status_is_documented() -> None:
    text = (ROOT / "docs/reference/exit-status.md").read_text()
    assert [status for status in ExitStatus if f"| {status.value} |" not in text] == []


def test_every_how_to_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = [page for page in PAGES if page.parent.parent == ROOT / "docs"]
    missing = [p for p in pages if str(p.relative_to(ROOT / "docs")) not in index]
    assert missing == []


@pytest.mark.parametrize(
    ("page", "benchmark"),
    [
        ("README.md", "environment"),
        ("docs/how-to/install.md", "environment"),
        ("docs/how-to/tune.md", "links"),
    ],
)
def test_a_table_of_figures_is_the_measured_one(page: str, benchmark: str) -> None:
    script = [sys.executable, str(ROOT / f"benchmarks/{benchmark}.py"), "--table"]
    assert subprocess.check_output(script, text=True) in (ROOT / page).read_text()

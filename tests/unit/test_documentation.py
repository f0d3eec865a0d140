"""The documentation agrees with the code: commands, settings, statuses, links, file names."""

import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest

from stoker.cli import COMMANDS
from stoker.cli.root import command as stoker_command
from stoker.knowledge.export_targets import ExportFormat
from stoker.knowledge.projects import projects
from stoker.model.errors import ExitStatus
from stoker.model.recipe import PLACEHOLDERS, BackendRecipe, ProjectRecipe
from stoker.settings.declared import OPTIONS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_links_lead_somewhere() -> None:
    links = [
        (page.parent / target)
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
        if "://" not in target
    ]
    assert len(links) > len(PAGES)
    assert [str(link.relative_to(ROOT)) for link in links if not link.exists()] == []


def test_links_into_a_page_lead_to_its_headings() -> None:
    links = [
        ((page.parent / target).resolve() if target else page, anchor)
        for page in PAGES
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text())
    ]
    assert len(links) > 10
    assert [f"{page.name}#{name}" for page, name in links if name not in _anchors(page)] == []


def _anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives to the headings of a page."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_nothing_advises_to_install_stoker_from_the_package_index() -> None:
    """It is not there; extras are packages that are."""
    texts = [*PAGES, *sorted((ROOT / "src").rglob("*.py")), *(ROOT / "src").rglob("*.toml")]
    wrong = re.compile(r"(pip|uv tool|pipx) install [^\n`|]*(?<=[ '])stoker(\[|==|\b(?![-/.]))")
    assert [page.name for page in texts if wrong.search(page.read_text())] == []


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"stoker {name}" not in text] == []


def _commands(text: str) -> list[str]:
    """Return the commands of stoker in a text, without comments and what the shell adds."""
    lines = re.findall(r"^\s*(?:\$ )?(stoker .*)$", text, re.MULTILINE)
    return [re.split(r"\s{2,}|\s(?:#|\||>>?|&&)\s", line)[0] for line in lines]


def _root() -> click.Context:
    """Return a context with stoker's settings: click keeps the help option that a command got with
    its first context, for all that follow in this process.
    """
    return stoker_command.make_context("stoker", [], resilient_parsing=True)


def _parsed(line: str) -> click.Context:
    """Parse a command as the command line does, and run nothing."""
    context = _root()
    line = re.sub(r"\$\(.*\)", "13.0", line)  # what another command prints
    words = [word for word in shlex.split(line)[1:] if word != "-v"]
    while isinstance(context.command, click.Group):
        name, found, words = context.command.resolve_command(context, words)
        assert found is not None
        context = found.make_context(name, words, parent=context)
        words = [*context._protected_args, *context.args]
    return context


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_pages_have_arguments_that_exist(page: Path) -> None:
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", page.read_text(), re.DOTALL)
    for line in _commands("\n".join(blocks)):
        with suppress(click.exceptions.Exit):  # of --help
            _parsed(line)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_examples_that_work(name: str) -> None:
    command = stoker_command.get_command(_root(), name)
    assert command is not None
    lines = _commands((command.help or "").replace("bash:  ", ""))
    assert lines
    for line in lines:
        assert _parsed(line).command_path.split()[1] == name


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_pages_about_the_code_name_files_that_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    folders = [ROOT, *(path for path in (ROOT / "src/stoker").glob("**/") if path.is_dir())]
    names = re.findall(r"`([\w./-]+\.(?:py|c|toml|yml))`", text)
    assert len(names) > 10
    missing = [name for name in names if not any((folder / name).exists() for folder in folders)]
    assert [name for name in missing if name not in {"setup.py", "stoker.toml"}] == []


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs/reference/settings.md").read_text()
    rows = [
        f"| `{option.name}` | `{option.flag}` | `{option.variable}` | {option.help} |"
        for option in OPTIONS.values()
    ]
    assert [row for row in rows if row not in text] == []
    keys = re.findall(r"^\| `(\w+)` \| `--", text, re.MULTILINE)
    assert len(keys) == len(set(keys)), "each is there once"


def test_every_exit_status_is_documented() -> None:
    text = (ROOT / "docs/reference/exit-status.md").read_text()
    numbers = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert numbers == {int(status) for status in ExitStatus}


def test_every_format_of_an_export_is_documented() -> None:
    described = stoker_command.get_command(click.Context(stoker_command), "export")
    assert described is not None
    for text in (described.help or "", (ROOT / "docs/how-to/export.md").read_text()):
        assert [name for name in ExportFormat if name not in text] == []


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
    ],
)
def test_a_table_of_figures_is_the_measured_one(page: str, benchmark: str) -> None:
    script = [sys.executable, str(ROOT / f"benchmarks/{benchmark}.py"), "--table"]
    assert subprocess.check_output(script, text=True) in (ROOT / page).read_text()


def test_recipes_and_their_keys_are_in_the_reference() -> None:
    text = (ROOT / "docs/reference/recipes.md").read_text()
    for recipe in projects().values():
        backends = ", ".join(sorted(recipe.backends))
        assert f"| {recipe.name} | {backends} | {recipe.facts_from} |" in text
    for struct in (ProjectRecipe, BackendRecipe):
        missing = [key for key in struct.__struct_fields__ if f"`{key}`" not in text]
        assert missing in ([], ["backends"])
    assert not [form for form in PLACEHOLDERS if f"`{form}`" not in text]

"""Facts of the Python of the build: its interpreter, and what installs for it.

Each is read when a fix needs it. A fact that is not known has no value, and a fix that needs it is
not offered.
"""

import re
import shlex
from pathlib import Path

from stoker.diagnose.about import About, Facts
from stoker.diagnose.installing import pip_command, pip_install, system_commands
from stoker.model.shell import ShellScript, Template, fill, joined, outside, quoted, recorded

FACTS = Facts()

_OF_PYTHON = r"/usr/include/python(3\.\d{1,2})\b|\bPython3? .{0,300}found version \"(3\.\d{1,2})"
_BUILT_FOR = r"\bcpython-3(\d{1,2})\b"  # in the names of modules and of build folders
_BY_UV = (
    r"Failed to (?:download and )?build `|\buv (?:pip|sync|build|add|run) "
    r"|hint: This error likely indicates|Using C?Python \d.{1,80} environment at: "
)


@FACTS.text("run.python", "the interpreter that builds")
def _python(about: About) -> str | None:
    return about.python


@FACTS.command("run.pip", "the command that installs Python packages for the build")
def _pip(about: About) -> ShellScript | None:
    if about.is_windows:  # a log of another machine
        return fill(Template("python -m pip install"), {})
    return None if about.interpreter.managed else pip_command(about.here, about.interpreter)


@FACTS.text("run.uv", "the word uv, if uv built")
def _uv(about: About) -> str | None:
    by_uv = about.run.command.startswith("uv ") or about.first(_BY_UV)
    return "uv" if by_uv else None


@FACTS.text(
    "run.python_wanted",
    "the newest Python that a requirement in the log allows, or the last before a change",
)
def _python_wanted(about: About) -> str | None:
    supported = about.words("newest") or about.words("last")
    text = " ".join([*about.groups.get("wanted", ()), *supported])
    versions = re.findall(r"(>=|>|==|~=|<=|<|!=)?\s*(3\.\d{1,2})", text)
    least = [number for sign, number in versions if sign in (">=", "==", "~=", "")]
    least += [f"3.{int(number[2:]) + 1}" for sign, number in versions if sign == ">"]
    below = [f"3.{int(number[2:]) - 1}" for sign, number in versions if sign == "<"]
    minors = [int(number[2:]) for number in below or least]
    return f"3.{min(minors) if below else max(minors)}" if minors else None


@FACTS.command("run.python_new", "the commands that make an environment with that version")
def _python_new(about: About) -> ShellScript | None:
    wanted = _python_wanted(about)
    if wanted is None:
        return None
    version = {"version": outside(wanted)}
    if about.here.which(f"python{wanted}"):
        template = Template(
            "python{version} -m venv .venv-{version} && . .venv-{version}/bin/activate"
        )
        return fill(template, version)
    made = fill(
        Template(
            "uv venv --seed --python {version} .venv-{version}\n. .venv-{version}/bin/activate"
        ),
        version,
    )
    uv = None if about.here.which("uv") else pip_install(["uv"], about.here, about.interpreter)
    return joined(filter(None, (uv, made)))


@FACTS.command(
    "run.by_new_python", "the command that failed, with the programs of that environment"
)
def _by_new_python(about: About) -> ShellScript | None:
    """A command that names the programs of an environment by their path is not changed by another
    environment that is active.
    """
    wanted, named = _python_wanted(about), about.commanded_python
    if wanted is None or named is None:
        return recorded(about.run.command) if about.run.command else None
    old, new = f"{Path(named).parent}/", f"{Path(about.run.folder, f'.venv-{wanted}')}/bin/"
    return quoted(word.replace(old, new) for word in shlex.split(about.run.command))


def _version_in_log(about: About) -> str | None:
    """Return the version of Python whose headers or modules a log names."""
    if named := about.first(_OF_PYTHON):
        return named[1] or named[2]
    built = about.first(_BUILT_FOR)
    return f"3.{built[1]}" if built else None


@FACTS.command("machine.python_headers", "the command that installs the headers of the interpreter")
def _python_headers(about: About) -> ShellScript | None:
    manager = about.here.manager
    version = _version_in_log(about) or about.interpreter.version
    if not version or manager not in ("apt", "dnf", "apk", "zypper"):
        return None
    ending = {"apt": "-dev", "apk": "3-dev"}.get(manager, "-devel")
    package = f"python{'' if manager == 'apk' else version}{ending}"
    return system_commands([package], about.here, manager)

"""Facts of the run that failed: its command, its folders and its Python.

Each is read when a fix needs it. A fact that is not known has no value, and a fix that needs it is
not offered.
"""

import os
import re
import shlex
from pathlib import Path

from stoker.diagnose.about import About, Facts
from stoker.diagnose.installing import pip_command, search_folders, system_commands
from stoker.diagnose.lines import compiled
from stoker.knowledge.providers import ProvidedKind, built_with, provider
from stoker.model.secrets import HIDDEN

FACTS = Facts()

_MOST_FOLDERS = 5000  # in which a file is searched

# What a log shows of the command that was run, most specific first, and that command.
_COMMANDS = (
    (r"^\$ (?P<command>(?:pip|uv|python3?|cmake|ninja|make) .{1,200})$", "{command}"),
    (r"\bsetup\.py (?P<what>bdist_wheel|develop|install)\b", "python setup.py {what}"),
)
_BUILT_IN = r"-- Build files have been written to: (\S.{0,300})$"
_FOLDER_OPTION = r"(?:--build|-C|-B)[ =]?([^\s'\"]+)"
_ONLY_BUILDS = r"^(?:\S*/)?(?:ninja|make|cmake --build)\b"
_OF_PYTHON = r"/usr/include/python(3\.\d{1,2})\b"
_BY_UV = r"Failed to (?:download and )?build `|\buv (?:pip|sync|build|add|run) "
_PACKAGES = (
    r"(?:Failed building wheel for|Failed to build|Building wheel for) `?([A-Za-z0-9][\w.-]{0,60})"
)


@FACTS.add("run.command", "the command that failed")
def _command(about: About) -> str | None:
    if about.run.command:
        return None if HIDDEN in about.run.command else about.run.command
    for pattern, command in _COMMANDS:
        if match := about.first(pattern):
            return command.format(**match.groupdict())
    return None


@FACTS.add("run.governed", "the command that failed, if stoker ran it")
def _governed(about: About) -> str | None:
    return about.run.command or None


@FACTS.add("run.folder", "the folder in which it ran")
def _folder(about: About) -> str | None:
    return about.run.folder or None


@FACTS.add("run.cmake_folder", "CMake's build folder")
def _cmake_folder(about: About) -> str | None:
    named = [match[1] for line in about.lines if (match := compiled(_BUILT_IN).search(line.text))]
    base = about.run.folder or Path.cwd()
    if about.run.command:
        named += [match[1] for match in compiled(_FOLDER_OPTION).finditer(about.run.command)]
    if about.run.folder:
        named += [".", "build"]
    folders = (Path(base, name) for name in named)
    found = next((one for one in folders if (one / "CMakeCache.txt").is_file()), None)
    return shlex.quote(str(found.resolve())) if found else None


@FACTS.add("run.set_aside", "the command that renames CMake's build folder")
def _set_aside(about: About) -> str | None:
    folder = _cmake_folder(about)
    return f'mv {folder} {folder}."$(date +%s)"' if folder else None


@FACTS.add("run.configure", "the command that configures CMake's build folder again")
def _configure(about: About) -> str | None:
    """Return it if the command that failed only builds; others configure by themselves."""
    folder = _cmake_folder(about)
    if folder is None or not compiled(_ONLY_BUILDS).match(about.run.command):
        return None
    cache = Path(shlex.split(folder)[0], "CMakeCache.txt").read_text(errors="replace")
    entries = dict(re.findall(r"^([\w-]+:\w+)=(.*)$", cache, re.MULTILINE))
    plain = {name.partition(":")[0]: value for name, value in entries.items()}
    given = re.findall(
        r"^//No help, variable specified on the command line\.\n([\w-]+)", cache, re.MULTILINE
    )
    options = [
        f"-D{name}={plain[name]}" for name in (*given, "CMAKE_BUILD_TYPE") if plain.get(name)
    ]
    words = ["cmake", "-S", plain["CMAKE_HOME_DIRECTORY"], "-G", plain["CMAKE_GENERATOR"], *options]
    return f"{shlex.join(words)} -B {folder}"


@FACTS.add("run.package", "the Python project that was built")
def _package(about: About) -> str | None:
    if found := about.first(_PACKAGES):
        return found[1]
    words = shlex.split(about.run.command) if about.run.command.startswith(("pip ", "uv ")) else []
    names = [word for word in words[2:] if re.fullmatch(r"[A-Za-z][\w.-]+(?:[=<>]=.*)?", word)]
    return names[-1] if names and names[-1] != "install" else None


@FACTS.add("run.needs", "the command that installs all that Debian builds the project with")
def _needs(about: About) -> str | None:
    """Return it if the project needs what is missing: builds name only the first thing they lack.
    Development files are of that kind; of programs, those that Debian installs for the project.
    """
    project = _package(about)
    if project is None or about.here.manager != "apt" or about.here.conda:
        return None
    found = [
        (kind, one)
        for kind in ProvidedKind
        for word in about.words(kind)
        if kind is not ProvidedKind.MODULE and (one := provider(kind, word))
    ]
    needs = built_with(project)
    families = {_family(name) for name in needs}
    missing = [name for _, one in found for name in one.packages.get("apt", "").split()]
    others = [name for name in missing if _family(name) not in families]
    if not needs or not missing or any(not name.endswith("-dev") for name in others):
        return None
    folders = (line for kind, one in found for line in search_folders(kind, [one]))
    return "\n".join([*system_commands([*others, *needs], about.here, "apt"), *folders])


def _family(package: str) -> str:
    """Return what the names of packages with the same files begin with, such as libcurl."""
    return package.partition("-")[0].rstrip("0123456789")


@FACTS.add("run.python", "the interpreter that builds")
def _python(about: About) -> str | None:
    return about.python


@FACTS.add("run.pip", "the command that installs Python packages for the build")
def _pip(about: About) -> str | None:
    if about.interpreter and about.interpreter.managed:
        return None
    return pip_command(about.interpreter, about.python, about.here)


@FACTS.add("run.managed", "the interpreter, if the distribution forbids pip to change it")
def _managed(about: About) -> str | None:
    return about.python if about.interpreter and about.interpreter.managed else None


@FACTS.add("run.uv", "the word uv, if uv built")
def _uv(about: About) -> str | None:
    by_uv = about.run.command.startswith("uv ") or about.first(_BY_UV)
    return "uv" if by_uv else None


@FACTS.add("run.not_executable", "the program of the source tree that is not executable")
def _not_executable(about: About) -> str | None:
    for word in about.words("path"):
        file = Path(about.run.folder, word)
        if about.run.folder and file.is_file() and not os.access(file, os.X_OK):
            return word
    return None


@FACTS.add("run.no_git", "the folder of the run, if it is no git repository")
def _no_git(about: About) -> str | None:
    folder = Path(about.run.folder or ".").absolute()
    is_git = any((one / ".git").exists() for one in (folder, *folder.parents))
    return str(folder) if about.run.folder and not is_git else None


@FACTS.add("run.read_only", "the folder of the run, if it cannot be written")
def _read_only(about: About) -> str | None:
    return (
        about.run.folder
        if about.run.folder and _is_mounted(about.run.folder, os.ST_RDONLY)
        else None
    )


@FACTS.add("run.noexec", "the folder of the run, if programs may not be run from it")
def _noexec(about: About) -> str | None:
    return (
        about.run.folder
        if about.run.folder and _is_mounted(about.run.folder, os.ST_NOEXEC)
        else None
    )


def _is_mounted(folder: str, flag: int) -> bool:
    return Path(folder).is_dir() and bool(os.statvfs(folder).f_flag & flag)


@FACTS.add("run.include_folder", "the folder of the source tree that has the missing header")
def _include_folder(about: About) -> str | None:
    headers = about.words("header")
    found = _found_below(about.run.folder, headers[0]) if headers and about.run.folder else None
    return str(found).removesuffix(headers[0]).rstrip("/") if found else None


@FACTS.add(
    "run.generated_from", "the file of the source tree from which the missing header is made"
)
def _generated_from(about: About) -> str | None:
    for header in about.words("header"):
        for ending, origin in ((".pb.h", ".proto"), ("_generated.h", ".fbs"), (".h", ".h.in")):
            name = header.removesuffix(ending) + origin if header.endswith(ending) else ""
            if name and about.run.folder and (found := _found_below(about.run.folder, name)):
                return str(found)
    return None


@FACTS.add("run.declared_in", "the standard headers that declare the names that the log lacks")
def _declared_in(about: About) -> str | None:
    return ", ".join(f"<{header}>" for header in _headers(about)) or None


@FACTS.add("run.include_flags", "the options that include those headers in every file")
def _include_flags(about: About) -> str | None:
    return " ".join(f"-include {header}" for header in _headers(about)) or None


def _headers(about: About) -> list[str]:
    from stoker.knowledge.compilers import declaring_header

    found = [declaring_header(word) for word in about.words("name")]
    return list(dict.fromkeys(filter(None, found)))


@FACTS.add("run.library_folder", "the folder below that of the run that has the missing library")
def _library_folder(about: About) -> str | None:
    if not about.run.folder:
        return None
    for name in about.words("library"):
        for ending in ("so", "a"):
            if found := _found_below(about.run.folder, f"lib{name}.{ending}"):
                return str(found.parent)
    return None


@FACTS.add("run.link_flags", "the options that link the missing libraries")
def _link_flags(about: About) -> str | None:
    return " ".join(f"-l{name}" for name in about.words("library")) or None


@FACTS.add("run.version", "the version that the source tree states")
def _version(about: About) -> str | None:
    folder = Path(about.run.folder) if about.run.folder else None
    named = re.search(r"-(\d+(?:\.\d+)+)(?:/|$)", str(folder or ""))
    for name in ("PKG-INFO", "VERSION", "version.txt"):
        try:
            text = (folder / name).read_text(errors="replace") if folder else ""
        except OSError:
            continue
        if found := re.search(r"(?:^Version: |^)(\d+(?:\.\d+)+\S*)$", text, re.MULTILINE):
            return found[1]
    return named[1] if named else None


def _found_below(folder: str, name: str) -> Path | None:
    """Return a file below a folder whose path ends with a name; the search is bounded."""
    for number, (base, folders, _) in enumerate(os.walk(folder)):
        folders[:] = [one for one in folders if not one.startswith(".")]
        if (file := Path(base, name)).is_file():
            return file
        if number > _MOST_FOLDERS:
            return None
    return None


# -- python ----------------------------------------------------------------------------------------


@FACTS.add("run.python_wanted", "the oldest version of Python that a requirement in the log allows")
def _python_wanted(about: About) -> str | None:
    text = " ".join(about.groups.get("wanted", ()))
    versions = re.findall(r"(>=|>|==|~=|<=|<|!=)?\s*(3\.\d{1,2})", text)
    least = [number for sign, number in versions if sign in (">=", "==", "~=", "")]
    least += [f"3.{int(number[2:]) + 1}" for sign, number in versions if sign == ">"]
    below = [f"3.{int(number[2:]) - 1}" for sign, number in versions if sign == "<"]
    found = sorted(least or below, key=lambda number: int(number[2:]))
    return found[-1] if found else None


@FACTS.add("run.python_new", "the commands that make an environment with that version")
def _python_new(about: About) -> str | None:
    wanted = _python_wanted(about)
    if wanted is None:
        return None
    if about.here.which(f"python{wanted}"):
        return f"python{wanted} -m venv .venv-{wanted} && . .venv-{wanted}/bin/activate"
    uv = (
        []
        if about.here.which("uv")
        else [f"{pip_command(about.interpreter, about.python, about.here)} uv"]
    )
    return "\n".join(
        [*uv, f"uv venv --seed --python {wanted} .venv-{wanted}", f". .venv-{wanted}/bin/activate"]
    )


@FACTS.add("machine.python_headers", "the command that installs the headers of the interpreter")
def _python_headers(about: About) -> str | None:
    manager = about.here.manager
    named = about.first(_OF_PYTHON)
    own = about.interpreter.version if about.interpreter else None
    version = named[1] if named else own
    if version is None or manager not in ("apt", "dnf", "apk", "zypper"):
        return None
    ending = {"apt": "-dev", "apk": "3-dev"}.get(manager, "-devel")
    package = f"python{'' if manager == 'apk' else version}{ending}"
    return "\n".join(system_commands([package], about.here, manager))

"""Facts of the run that failed: its command, its folders and its source.

Each is read when a fix needs it. A fact that is not known has no value, and a fix that needs it is
not offered.
"""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from stoker.diagnose.about import About, Facts
from stoker.diagnose.installing import search_settings, system_commands
from stoker.diagnose.lines import compiled
from stoker.knowledge.failures import shows_reader
from stoker.knowledge.packages import packages_of
from stoker.knowledge.providers import ProvidedKind, built_with, provider
from stoker.model.shell import ShellScript, Template, fill, joined, outside, quoted, recorded

FACTS = Facts()

_MOST_FOLDERS = 5000  # in which a file is searched
# What a log shows of the command that was run: one of these alone, without anything that a shell
# or another program would execute, fetch from an address, or read outside of the current folder.
_SHOWN = r"^\$ (\S.{1,200})$"
_KNOWN = (
    r"(?a:(?:(?:python3? -m )?(?:pip|build)|uv (?:pip|build|sync)|python3? setup\.py|cmake|ninja"
    r"|make)"
    r"(?: (?!/|\.\./|-(?:P|E|f|i|c)|--(?:index|extra|find|eval|file|make))"
    r"(?:(?!://|/\.\.|=/|=\.\.)[\w@%+=:,./\[\]-])+)*)"
)
_OF_SETUP = r"\bsetup\.py (bdist_wheel|develop|install)\b"
_CACHE = "CMakeCache.txt"
_BUILT_IN = r"-- Build files have been written to: (\S.{0,300})$"
_FOLDER_OPTION = r"(?:--build|-C|-B)[ =]?([^\s'\"]+)"
_ONLY_BUILDS = r"^(?:\S*/)?(?:ninja|make|cmake --build)\b"
_BY_CARGO = (
    r"custom build command for `|^\s{0,24}Compiling [\w-]+ v\d"
    r"|\bcargo(?:\.exe)? (?:build|install|run)\b|error: could not compile `|error: linking with `"
)
# An unpacked archive has no .git. pip and uv say so too: what they take from an index is one.
_ARCHIVE = (
    r"fatal: not a git repository|/pip-install-\w{4,12}/|/sdists-v\d/"
    r"|^\s{0,8}(?:Downloading|Using cached|Collecting) \S{1,200}\.(?:tar\.(?:gz|xz|bz2)|zip)\b"
    r"|(?:unpacking source archive|[Ee]xtracting|[Uu]npacking|tar x\w{1,4}) \S{1,200}"
    r"\.(?:tar\.\w{2,4}|tgz|zip)\b"
)
# Where the macros are that the groups of a name stand for: those of autoconf itself stay where a
# macro of pkg-config around them is unknown.
_WITH_MACROS = {
    "standard": "pkg-config",
    "pkg": "pkg-config",
    "libtool": "libtool",
    "gettext": "gettext",
    "archive": "autoconf-archive",
}
_ONLY_MAKE = r"^(?:\S*/)?g?make\b(?!.{0,200}\s-(?:C|f)\b)"
_SETS_FLAGS = r"(?m)^(?:override )?C(?:XX)?FLAGS\s{0,8}:{0,2}="
_TEMPORARY_FILE = (
    r"((?:/tmp/|/var/tmp/|\btmpxft_|/cc[A-Za-z0-9]{6}\.)[^\s:'\"]{0,200})[^\n]{0,80}"
    r"(?:No space left|Success$|Errno 28)|writing file"
    r"|Could not install packages due to an OSError: \[Errno 28\]"
    r"|(?:Errno 28|os error 28)[^\n]{0,80}(/tmp/\S{0,80})"
)
_NOT_RUN = (
    r"(?:^|[: ])(?:\d{1,4}: )?(?:exec: )?\.{0,2}/\S{1,200}: (?:Is a directory|Permission denied)$"
)
_OPTION = r"^\s*(?:option|cmake_dependent_option)\s*\(\s*(\w+)"
# How a command defines an option of CMake, by how it begins.
_DEFINES = (
    (r"(?:\S*/)?stoker (?:build|develop)\b", Template("-D {option}=0")),
    (r"(?:\S*/)?cmake (?!--build|-E|-P)", Template("-D{option}=0")),
)
_PACKAGES = (
    r"(?:Failed building wheel for|Failed to build|Building wheel for) `?([A-Za-z0-9][\w.-]{0,60})"
)


@FACTS.command("run.command", "the command that failed")
def _command(about: About) -> ShellScript | None:
    if about.run.command:
        return recorded(about.run.command)
    if (shown := about.first(_SHOWN)) and compiled(_KNOWN).fullmatch(shown[1]):
        return quoted(shown[1].split())
    if built := about.first(_OF_SETUP):
        return fill(Template("python setup.py {what}"), {"what": outside(built[1])})
    return None


@FACTS.text("run.governed", "the command that failed, if stoker ran it")
def _governed(about: About) -> str | None:
    return about.run.command or None


@FACTS.text("run.alone", "the memory that one step needed alone when it ran out of it")
def _alone(about: About) -> str | None:
    return about.run.alone or None


@FACTS.text("run.folder", "the folder in which it ran")
def _folder(about: About) -> str | None:
    return about.run.folder or None


@FACTS.text("run.cmake_folder", "CMake's build folder")
def _cmake_folder(about: About) -> str | None:
    """Return the folder of the run's command. A log may name others, but only below those that the
    user works in.
    """
    base = Path(about.run.folder or Path.cwd()).resolve()
    named = [match[1] for line in about.lines if (match := compiled(_BUILT_IN).search(line.text))]
    below = (Path(base, name).resolve() for name in named)
    folders = [*(one for one in below if base in (one, *one.parents)), *_own_folders(about)]
    return next((str(one) for one in folders if (one / _CACHE).is_file()), None)


def _own_folders(about: About) -> Iterator[Path]:
    """Yield the folders in which the command of the run can have built."""
    if about.run.command:
        for match in compiled(_FOLDER_OPTION).finditer(about.run.command):
            yield Path(about.run.folder, match[1]).resolve()
    if about.run.folder:
        yield from (Path(about.run.folder, name).resolve() for name in (".", "build"))


@FACTS.command("run.set_aside", "the command that renames CMake's build folder")
def _set_aside(about: About) -> ShellScript | None:
    folder = _cmake_folder(about)
    template = Template('mv {folder} {folder}."$(date +%s)"')
    return fill(template, {"folder": outside(folder)}) if folder else None


@FACTS.command("run.configure", "the command that configures CMake's build folder again")
def _configure(about: About) -> ShellScript | None:
    """Return it if the command that failed only builds; others configure by themselves. What a log
    names is not read.
    """
    folder = _cmake_folder(about)
    if folder is None or Path(folder) not in _own_folders(about):
        return None
    if not compiled(_ONLY_BUILDS).match(about.run.command):
        return None
    cache = Path(folder, _CACHE).read_text(errors="replace")
    entries = dict(re.findall(r"^([\w-]+:\w+)=(.*)$", cache, re.MULTILINE))
    plain = {name.partition(":")[0]: value for name, value in entries.items()}
    given = re.findall(
        r"^//No help, variable specified on the command line\.\n([\w-]+)", cache, re.MULTILINE
    )
    options = [
        f"-D{name}={plain[name]}" for name in (*given, "CMAKE_BUILD_TYPE") if plain.get(name)
    ]
    source, generator = plain.get("CMAKE_HOME_DIRECTORY"), plain.get("CMAKE_GENERATOR")
    if not source or not generator:
        return None
    return quoted(["cmake", "-S", source, "-G", generator, *options, "-B", folder])


@FACTS.text("run.package", "the Python project that was built")
def python_project(about: About) -> str | None:
    """Return the Python project that was built."""
    if found := about.first(_PACKAGES):
        return found[1]
    words = shlex.split(about.run.command) if about.run.command.startswith(("pip ", "uv ")) else []
    names = [word for word in words[2:] if re.fullmatch(r"[A-Za-z][\w.-]+(?:[=<>]=.*)?", word)]
    return names[-1] if names and names[-1] != "install" else None


@FACTS.command("run.needs", "the command that installs all that Debian builds the project with")
def _needs(about: About) -> ShellScript | None:
    """Return it if the project needs what is missing: builds name only the first thing they lack.
    Development files are of that kind; of programs, those that Debian installs for the project.
    """
    project = python_project(about)
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
    folders = (line for kind, one in found for line in search_settings(kind, [one]))
    installs = system_commands([*others, *needs], about.here, "apt")
    return installs and joined([installs, *folders])


def _family(package: str) -> str:
    """Return what the names of packages with the same files begin with, such as libcurl."""
    return package.partition("-")[0].rstrip("0123456789")


@FACTS.command("run.autoconf_parts", "the command that installs what has autoconf's macros")
def _autoconf_parts(about: About) -> ShellScript | None:
    manager = None if about.here.conda else about.here.manager
    owners = [owner for kind, owner in _WITH_MACROS.items() if about.words(kind)]
    packages = [name for owner in owners for name in packages_of(owner, manager or "")]
    return system_commands(packages, about.here, manager) if manager and packages else None


@FACTS.text("run.cargo", "the word cargo, if cargo built")
def _cargo(about: About) -> str | None:
    return "cargo" if about.first(_BY_CARGO) else None


@FACTS.text("run.native", "the option -march=native, if a command of the log has it")
def _native(about: About) -> str | None:
    return "-march=native" if about.first(r"-m(?:arch|cpu)=native\b", "=native") else None


@FACTS.text("run.makefile", "the makefile of the run, if it sets the flags of compilers itself")
def _makefile(about: About) -> str | None:
    if not (about.run.folder and compiled(_ONLY_MAKE).match(about.run.command)):
        return None
    for name in ("GNUmakefile", "makefile", "Makefile"):
        try:
            text = Path(about.run.folder, name).read_text(errors="replace")
        except OSError:
            continue
        return name if compiled(_SETS_FLAGS).search(text) else None
    return None


@FACTS.text("run.torch", "the word torch, if the build is one of torch or of an extension of it")
def _torch(about: About) -> str | None:
    shown = shows_reader("TORCH_CUDA_ARCH_LIST")
    return "torch" if shown and about.shows(shown) else None


@FACTS.command("run.no_error", "the options that keep the warnings of the log warnings")
def _no_error(about: About) -> ShellScript | None:
    template = Template("-Wno-error={name}")
    made = (fill(template, {"name": outside(name)}) for name in about.words("warning"))
    return joined(filter(None, made), " ")


@FACTS.text("run.own_werror", "the warning that a command of the log itself makes an error")
def _own_werror(about: About) -> str | None:
    """Return it if the project has an option for this warning alone: the last such option wins, and
    flags of the environment come before those of the project.
    """
    for name in about.words("warning"):
        if about.first(rf"(?<!\[)-Werror={re.escape(name)}(?![\w-])"):
            return name
    return None


@FACTS.text("run.own_path", "the path of the log, if it is in the folder of the run or the home")
def _own_path(about: About) -> str | None:
    homes = [Path(one).resolve() for one in (about.run.folder, _home(about)) if one]
    for word in about.words("path"):
        path = Path(about.run.folder or ".", word).resolve()
        if any(home in path.parents and home != Path("/") for home in homes):
            return str(path)
    return None


def _home(about: About) -> str:
    return about.here.environment.get("HOME", "")


@FACTS.text("run.temporary_file", "the temporary file that the log says could not be written")
def _temporary_file(about: About) -> str | None:
    found = about.first(_TEMPORARY_FILE)
    return found[0][:80] if found else None


@FACTS.text("run.not_executable", "the program of the source tree that is not executable")
def _not_executable(about: About) -> str | None:
    folder = Path(about.run.folder).resolve()
    for word in about.words("path") if about.run.folder else ():
        file = (folder / word).resolve()
        if folder in file.parents and file.is_file() and not os.access(file, os.X_OK):
            return str(file.relative_to(folder))
    return None


@FACTS.text("run.executed_folder", "the path that the log says may not be run, if it is a folder")
def _executed_folder(about: About) -> str | None:
    if not about.run.folder or not about.first(_NOT_RUN):
        return None
    words = (*about.words("path"), *about.words("script"), *about.words("entry"))
    return next((word for word in words if (Path(about.run.folder) / word).is_dir()), None)


@FACTS.text("run.no_git", "the folder of the run, if it is no git repository")
def _no_git(about: About) -> str | None:
    folder = Path(about.run.folder or ".").absolute()
    is_git = any((one / ".git").exists() for one in (folder, *folder.parents))
    return str(folder) if about.run.folder and not is_git else None


@FACTS.text("run.of_archive", "the archive whose source is built, which is no clone")
def _of_archive(about: About) -> str | None:
    found = about.first(_ARCHIVE)
    return found[0].strip()[:80] if found else None


@FACTS.text("run.noexec", "the folder of the run, if programs may not be run from it")
def _noexec(about: About) -> str | None:
    return (
        about.run.folder
        if about.run.folder and _is_mounted(about.run.folder, os.ST_NOEXEC)
        else None
    )


def _is_mounted(folder: str, flag: int) -> bool:
    return Path(folder).is_dir() and bool(os.statvfs(folder).f_flag & flag)


@FACTS.text("run.declared_in", "the standard headers that declare the names that the log lacks")
def _declared_in(about: About) -> str | None:
    return ", ".join(f"<{header}>" for header in missing_headers(about)) or None


@FACTS.command("run.include_flags", "the options that include those headers in every file")
def _include_flags(about: About) -> ShellScript | None:
    template = Template("-include {header}")
    made = (fill(template, {"header": outside(header)}) for header in missing_headers(about))
    return joined(filter(None, made), " ")


def missing_headers(about: About) -> list[str]:
    """Return the standard headers that declare the names that the log lacks."""
    from stoker.knowledge.tools import declaring_header, declaring_header_of_c

    words = (*about.words("name"), *about.words("member"))
    found = [declaring_header(word) for word in words]
    found += [declaring_header_of_c(word) for word in about.words("function")]
    return list(dict.fromkeys(filter(None, found)))


@FACTS.text("run.library_folder", "the folder below that of the run that has the missing library")
def _library_folder(about: About) -> str | None:
    if not about.run.folder:
        return None
    for name in about.words("library"):
        for ending in ("so", "a"):
            if found := _found_below(about.run.folder, f"lib{name}.{ending}"):
                return str(found.parent)
    return None


@FACTS.command("run.link_flags", "the options that link the missing libraries")
def _link_flags(about: About) -> ShellScript | None:
    template = Template("-l{name}")
    made = (fill(template, {"name": outside(name)}) for name in about.words("library"))
    return joined(filter(None, made), " ")


@FACTS.text("run.version", "the version that the source tree states")
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
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    for number, (base, folders, _) in enumerate(os.walk(folder)):
        folders[:] = [one for one in folders if not one.startswith(".")]
        if (file := Path(base, name)).is_file():
            return file
        if number > _MOST_FOLDERS:
            return None
    return None


@FACTS.text("run.option", "the option of the source tree that leaves out what is missing")
def _option(about: About) -> str | None:
    """Return it if the CMakeLists.txt of the tree declares one with the name of a missing package,
    or of the library of a missing header. The tree is the folder of the run, or one that its
    command names.
    """
    wanted = [word.upper() for group in ("cmake", "part") for word in about.words(group)]
    wanted += [name.partition("_")[0] for name in wanted]  # cudnn_frontend is a part of cuDNN
    declared = _declared_options(about) if wanted else frozenset()
    names = (f"{start}_{name}" for name in wanted for start in ("USE", "WITH", "ENABLE", "BUILD"))
    return next((name for name in names if name in declared), None)


def _declared_options(about: About) -> frozenset[str]:
    if not about.run.folder:
        return frozenset()
    folder = Path(about.run.folder)
    for place in (folder, *(folder / word for word in shlex.split(about.run.command)[1:])):
        try:
            text = (place / "CMakeLists.txt").read_text(errors="replace")
        except (OSError, ValueError):
            continue
        return frozenset(re.findall(_OPTION, text, re.IGNORECASE | re.MULTILINE))
    return frozenset()


@FACTS.command("run.without", "the command that builds again without what is missing")
def _without(about: About) -> ShellScript | None:
    option, command = _option(about), _command(about)
    define = next((how for start, how in _DEFINES if re.match(start, about.run.command)), None)
    if option is None or command is None or define is None:
        return None
    more = fill(define, {"option": outside(option)})
    return joined([command, more], " ") if more else None

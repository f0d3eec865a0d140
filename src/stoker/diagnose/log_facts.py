"""Facts that only the log tells: whose the file of an error is, which tools and system it is of."""

from stoker.diagnose.about import About, Facts
from stoker.diagnose.lines import compiled
from stoker.diagnose.run_facts import missing_headers
from stoker.knowledge.owners import owner_of_path, release_of
from stoker.knowledge.packages import windows_programs
from stoker.model.shell import ShellScript, Template, fill, joined, outside

FACTS = Facts()
_BUNDLED = (
    r"(?:^|[/\\])(?:third[_-]?party|_deps|vendor(?:ed)?|extern(?:al)?s?|subprojects|submodules"
    r"|node_modules|\.cargo|mod)[/\\]"
)
# Names of POSIX that Microsoft's library has under others, and types as cl writes them.
_BY_CL = {
    "strcasecmp": "_stricmp",
    "strncasecmp": "_strnicmp",
    "strtok_r": "strtok_s",
    "popen": "_popen",
    "pclose": "_pclose",
    "fseeko": "_fseeki64",
    "ftello": "_ftelli64",
    "ssize_t": "__int64",
    "pid_t": "int",
    "mode_t": "int",
    "STDIN_FILENO": "0",
    "STDOUT_FILENO": "1",
    "PATH_MAX": "260",
    "F_OK": "0",
    "R_OK": "4",
    "W_OK": "2",
}
_ERROR_OF_NVCC = r"\.(?:cu|cuh|h|hpp|hh|inl)\(\d{1,6}\): error: "
_ERROR_WITH_PLACE = (
    r"\.\w{1,5}(?::\d{1,6}(?P<column>:\d{1,5}): |\(\d{1,6}(?:,\d{1,5})?\) ?: )(?:fatal )?error\b"
)
_OF_SYSTEM = r"^/usr/(?!src/)|^/opt/|^/Library/|^/Applications/|^[A-Z]:\\Program Files"


@FACTS.text("run.whose_file", "whose the file of the error is: your source, a dependency, a tool")
def _whose_file(about: About) -> str | None:
    file = next(iter(about.groups.get("file", ())), "")
    if not file:
        return None
    if about.is_own(file):
        return "your source"
    if owner := owner_of_path(file):
        return f"{owner}, a dependency"
    if release := release_of(file):
        return f"the release {release}"
    if compiled(_OF_SYSTEM).search(file):
        return "a package that is installed"
    if compiled(_BUNDLED).search(file):
        return "a project that the source contains"
    return "the source that is built"


@FACTS.text("run.own_file", "the file of the error, if it is in the folder of the run")
def _own_file(about: About) -> str | None:
    file = next(iter(about.groups.get("file", ())), "")
    return file if about.is_own(file) else None


@FACTS.text("run.released_name", "the published release whose file has the error")
def _released_name(about: About) -> str | None:
    file = next(iter(about.groups.get("file", ())), "")
    release = None if about.is_own(file) else release_of(file)
    return str(release) if release else None


@FACTS.text("run.recipe", "the file that names all that a build in a sandbox has")
def _recipe(about: About) -> str | None:
    return about.recipe.file if about.recipe else None


@FACTS.text("run.recipe_field", "where such a file names it")
def _recipe_field(about: About) -> str | None:
    return about.recipe.field if about.recipe else None


@FACTS.text("run.flatpak", "flatpak-builder, if the log is of a build by it")
def _flatpak(about: About) -> str | None:
    return "flatpak-builder" if about.recipe and "flatpak" in about.recipe.file else None


@FACTS.text("run.windows", "Windows, if the log is of a build there")
def _windows(about: About) -> str | None:
    return "Windows" if about.is_windows else None


@FACTS.text("run.macos", "macOS, if the log is of a build there")
def _macos(about: About) -> str | None:
    return "macOS" if about.here.manager == "brew" else None


@FACTS.text("run.of_nvcc", "nvcc, if the log has errors in its words")
def _of_nvcc(about: About) -> str | None:
    return "nvcc" if about.first(_ERROR_OF_NVCC, "error: ") and not about.is_windows else None


@FACTS.text("run.of_gcc", "gcc, if the first error has the form of gcc and clang, not that of cl")
def _of_gcc(about: About) -> str | None:
    first = about.first(_ERROR_WITH_PLACE, "error")
    return "gcc" if first and first["column"] else None


@FACTS.text("run.of_cargo", "cargo, if the log is of a build of it")
def _of_cargo(about: About) -> str | None:
    return "cargo" if about.first(r"^\s{0,8}Compiling \S{1,80} v\d|could not compile `") else None


@FACTS.command(
    "run.cl_renames",
    "the command for cmd that gives names of POSIX those of cl, where # stands for =",
)
def _cl_renames(about: About) -> ShellScript | None:
    names = [name for name in about.words("name") if name in _BY_CL]
    if len(names) < len(about.words("name")) or not names:
        return None
    template = Template("set CL=/D{name}#{other} %CL%")
    made = (fill(template, {"name": outside(one), "other": outside(_BY_CL[one])}) for one in names)
    return joined(filter(None, made), "\n")


@FACTS.command("run.cl_include", "the command for cmd that lets cl include standard headers")
def _cl_include(about: About) -> ShellScript | None:
    template = Template("set CL=/FI{header} %CL%")
    made = (fill(template, {"header": outside(header)}) for header in missing_headers(about))
    return joined(filter(None, made), "\n")


@FACTS.command("run.winget", "the command that installs the missing program on Windows")
def _winget(about: About) -> ShellScript | None:
    words = [word for group in ("program", "windows", "lacking") for word in about.words(group)]
    known = windows_programs().package
    found = next((known[word] for word in words if word in known), None)
    if not (found and about.is_windows):
        return None
    return fill(Template("winget install -e --id {package}"), {"package": outside(found)})

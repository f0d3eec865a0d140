"""What a container gets: this stoker, its requirements for the container's Python, and pip's
settings.

Both packages are folders of our cache, made whole once. Nothing is downloaded inside the container.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement

import stoker
from stoker import __version__
from stoker.builds.containers.pythons import InsidePython
from stoker.machine.installers import own_pip
from stoker.model.errors import CommandError, MissingError
from stoker.model.value import Value
from stoker.outside import folders, process
from stoker.outside.files import folder_made_whole

_LINE = re.compile(r"(?:global|install|:env:)\.([\w-]+)='(.*)'")

_OLDEST_GLIBC = 17  # of wheels: manylinux_2_17
TOOLS = "tools"  # the extra with CMake and ninja

# Run inside, by the container's Python: an environment with links to what it needs from outside.
ENTER = """
set -e
environment="$1"; python="$2"; requirements="$3"; own="$4"; shift 4
if ! [ -e "$environment/ready" ]; then
    "$python" -m venv --clear --without-pip --system-site-packages "$environment"
    ln -s "$requirements/cmake/data/bin/cmake" "$requirements/bin/ninja" "$environment/bin/"
    : > "$environment/ready"
fi
for packages in "$environment"/lib/python3*/site-packages; do
    printf '%s\\n' "$own" "$requirements" > "$packages/stoker.pth"
done
PATH="$environment/bin:$PATH" exec "$environment/bin/python" -m stoker "$@"
"""


class PipSettings(Value, frozen=True, kw_only=True):
    """Pip's settings. ``variables`` have the same meaning for a pip without a
    configuration file.
    """

    variables: dict[str, str] = {}
    paths: tuple[str, ...] = ()


def read_pip_settings(listed: str) -> PipSettings:
    """Return the settings of ``pip config list``. Later lines override earlier ones; the
    environment wins.
    """
    found: dict[str, str] = {}
    from_environment: dict[str, str] = {}
    for line in listed.splitlines():
        if setting := _LINE.fullmatch(line):
            into = from_environment if line.startswith(":env:") else found
            into[f"PIP_{setting[1].upper().replace('-', '_')}"] = setting[2].replace("\\n", " ")
    variables = found | from_environment
    local = (_folder_of(word) for value in variables.values() for word in value.split())
    paths = dict.fromkeys(str(path) for path in local if path.is_absolute() and path.exists())
    return PipSettings(variables=variables, paths=tuple(paths))


def _folder_of(word: str) -> Path:
    """Return the folder to mount: an index of pages called ``simple`` refers to files beside it."""
    if not word.startswith("file:"):
        return Path(word)
    path = Path(unquote(urlsplit(word).path))
    return path.parent if path.name == "simple" else path


def containers_folder() -> Path:
    """Return the folder for all that containers need and build."""
    return folders.cache() / "containers"


def container_lock(path: Path) -> Path:
    """Return the one lock of that folder: a container uses several parts of it."""
    return path.parent / "lock"


def requirements_for(python: InsidePython, say: Callable[[str], None]) -> Path:
    """Return what stoker requires for that Python."""
    wanted = required_inside(metadata.requires("stoker") or ())
    platforms = platform_tags(python)
    key = hashlib.sha256("\n".join([*wanted, *platforms]).encode()).hexdigest()[:8]
    folder = containers_folder() / f"requirements-{python.version}-{python.machine}-{key}"
    if folder.is_dir():
        return folder
    say(f"stoker for Python {python.version} in containers: packages from the package index")
    options = [*("--only-binary", ":all:"), *("--python-version", python.version)]
    options += [word for tag in platforms for word in ("--platform", tag)]
    quiet = ("--quiet", "--disable-pip-version-check", "--no-compile")
    with folder_made_whole(folder) as aside:
        command = [*download_pip(), "install", *quiet, "--target", str(aside), *options, *wanted]
        told = process.run(command, timeout=None)
        if not told.ok:
            raise CommandError("pip cannot fetch what stoker needs inside", output=told.stderr)
    return folder


def required_inside(requires: Iterable[str]) -> list[str]:
    """Return those of stoker's requirements that a container needs, which may lack the
    build tools.
    """
    wanted = []
    for text in sorted(requires):
        requirement = Requirement(text)
        if "extra ==" not in text:
            wanted.append(str(requirement))
        elif requirement.marker and requirement.marker.evaluate({"extra": TOOLS}):
            requirement.marker = None
            wanted.append(str(requirement))
    return wanted


def own_package(native: Mapping[str, Path]) -> Path:
    """Copy this stoker, with its native parts (name in the package: file) where an installed one
    has them.
    """
    package = Path(stoker.__file__).parent
    folder = containers_folder() / f"stoker-{__version__}-{_state(package, native.values())}"
    if folder.is_dir():
        return folder
    with folder_made_whole(folder) as aside:
        shutil.copytree(package, aside / "stoker", ignore=shutil.ignore_patterns("__pycache__"))
        for name, file in native.items():
            (aside / "stoker" / name).parent.mkdir(exist_ok=True)
            shutil.copy(file, aside / "stoker" / name)
        about = aside / f"stoker-{__version__}.dist-info" / "METADATA"
        about.parent.mkdir()
        about.write_text(metadata.distribution("stoker").read_text("METADATA") or "")
    return folder


def platform_tags(python: InsidePython) -> tuple[str, ...]:
    """Return the tags of wheels that run there. A static launcher runs anywhere."""
    machine = python.machine
    if python.glibc is None:
        return (f"musllinux_1_1_{machine}", f"musllinux_1_2_{machine}")
    minor = int(python.glibc.split(".")[1])
    tags = (f"manylinux_2_{n}_{machine}" for n in range(minor, _OLDEST_GLIBC - 1, -1))
    return (*tags, f"manylinux2014_{machine}")


def download_pip() -> list[str]:
    """Return the command of a pip that downloads: ours, or any on PATH."""
    if ours := own_pip():
        return [*ours]
    if pip := shutil.which("pip3") or shutil.which("pip"):
        return [pip]
    raise MissingError("there is no pip to fetch what stoker needs inside the container")


def _state(package: Path, native: Iterable[Path]) -> str:
    """Return a digest of all files, so that a changed stoker is copied again."""
    state = hashlib.sha256()
    own = sorted(path for path in package.rglob("*") if path.suffix != ".pyc" and path.is_file())
    for path in (*native, *own):
        status = path.stat()
        state.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return state.hexdigest()[:8]

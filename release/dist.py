"""`make dist`: builds the sdist and the wheel, and tries the wheel where there is no compiler.

    python release/dist.py [FOLDER]

The wheel is built from the sdist, so a file that the sdist lacks fails here. FOLDER (default: dist)
is emptied first.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARE = ROOT / "share"  # CMake installs it as the wheel's data, see CMakeLists.txt
# Every wheel contains files with these names.
EXPECTED = (
    "stoker/bin/stoker-launcher",
    "stoker/lib/libstoker-preload.so",
    "data/share/man/man1/stoker.1",
    "data/share/man/man1/stoker-build.1",
    "data/share/bash-completion/completions/stoker",
    "data/share/zsh/site-functions/_stoker",
    "data/share/fish/vendor_completions.d/stoker.fish",
    "data/share/stoker/schemas/inspect.json",
)
TRIALS = (
    ("stoker", "--version"),
    ("stoker", "plan", "cpu"),
    ("stoker", "run", "--", "true"),
)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, str(ROOT / "release/share.py"), str(SHARE))
    run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, folder.iterdir()))
    (wheel,) = folder.glob("*.whl")
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as place:
        try_wheel(wheel, Path(place))
    print(*sorted(folder.iterdir()), sep="\n")


def check_contents(wheel: Path) -> None:
    """Stop if the wheel lacks a file that users need."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    if missing := [end for end in EXPECTED if not any(name.endswith(end) for name in names)]:
        sys.exit(f"{wheel.name} does not contain {', '.join(missing)}")


def try_wheel(wheel: Path, place: Path) -> None:
    """Install the wheel into a new environment and run it with no other program than `true`."""
    run(sys.executable, "-m", "venv", str(place / "venv"))
    scripts = place / "venv/bin"
    run(str(scripts / "python"), "-m", "pip", "install", "--only-binary", ":all:", str(wheel))
    tools = place / "tools"
    tools.mkdir()
    (tools / "true").symlink_to(shutil.which("true") or "/bin/true")
    path = f"{scripts}{os.pathsep}{tools}"
    if compiler := shutil.which("cc", path=path) or shutil.which("gcc", path=path):
        sys.exit(f"the test environment contains a compiler: {compiler}")
    environment = {"PATH": path, "HOME": str(place), "STOKER_HOME": str(place / "home")}
    for words in TRIALS:
        run(str(scripts / words[0]), *words[1:], cwd=place, env=environment)
    if not (place / "venv/share/man/man1/stoker.1").exists():
        sys.exit("the manual page was not installed")


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Run a command; show its output only if it fails."""
    print("$", *command, flush=True)
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}ended with status {done.returncode}")


if __name__ == "__main__":
    main()

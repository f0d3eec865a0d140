# ruff: noqa: T201
"""`make demo`: builds kiln/ where there is not enough memory to build it the usual way.

    python examples/demo.py [FOLDER]

Everything is written to FOLDER, which is emptied first. The limit is a real one where we may set
one: a memory cgroup (either version, root) or a scope of the user's systemd. Elsewhere stoker is
told to keep to it, and nobody enforces it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

KILN = Path(__file__).parent / "kiln"
BIN = Path(sys.executable).parent
LIMIT = 1536 * 1024**2
GROUP = "stoker-demo"
ENTER = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"')
TRY_IT = """
import kiln, math
table, real = kiln.apply("sine", [0.5])[0], math.sin(0.5)
print(f">>> kiln.apply('sine', [0.5])\\n[{table}]")
assert abs(table - real) < 1e-3
"""


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".demo").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    os.environ["STOKER_HOME"] = str(folder / "home")
    print("kiln has the shape of PyTorch: generated operators, a Python extension on top.")
    print("Three of its files take the compiler about 0.9 GB each. The build gets 1.5 GiB.")
    summary = []
    try:
        if within := limited():
            summary.append(usual_way(folder / "usual", within))
            summary.append(stoker_way(folder / "dist", within))
        else:
            print("No memory cgroup can be made here (root or a user's systemd could): the kernel")
            print("will not enforce the limit, but stoker is told to keep to it.")
            summary.append(stoker_way(folder / "dist", (), "--memory", str(LIMIT)))
    finally:
        leave_group()
    summary.append(use(folder))
    title("In short")
    print(*summary, sep="\n")


def limited() -> tuple[str, ...]:
    """Words before a command that put it under the limit; none where that cannot be done."""
    for group, names in groups().items():
        with suppress(OSError):
            group.mkdir(exist_ok=True)
            for name, value in names.items():
                if (group / name).exists() or name == next(iter(names)):
                    (group / name).write_text(str(value))
            return (*ENTER, str(group))
    scope = ("systemd-run", "--user", "--scope", "--quiet", f"-pMemoryMax={LIMIT}")
    scope += ("-pMemorySwapMax=0", "--")
    with suppress(OSError):
        if subprocess.run([*scope, "true"], capture_output=True, check=False).returncode == 0:
            return scope
    return ()


def groups() -> dict[Path, dict[str, int]]:
    """Where a group may be made, and what is written there: the limit first, then that of swap."""
    root = Path("/sys/fs/cgroup")
    return {
        root / "memory" / GROUP: {
            "memory.limit_in_bytes": LIMIT,
            "memory.memsw.limit_in_bytes": LIMIT,
        },
        root / GROUP: {"memory.max": LIMIT, "memory.swap.max": 0},
    }


def leave_group() -> None:
    """It can go when its last process has: the governor stays for a moment."""
    for group in groups():
        deadline = time.monotonic() + 20
        while group.exists() and time.monotonic() < deadline:
            with suppress(OSError):
                group.rmdir()
            time.sleep(0.1)


def usual_way(build: Path, within: tuple[str, ...]) -> str:
    """Until ninja gives up, which it does when the kernel has killed a compiler."""
    title(f"The usual way: cmake -S {KILN.name} -B build -G Ninja && ninja -C build")
    began = time.monotonic()
    configure = ["cmake", "-S", str(KILN), "-B", str(build), "-G", "Ninja"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    # As many jobs as ninja has by itself on two CPUs, wherever we are.
    ninja = [*within, "ninja", "-C", str(build), "-j4"]
    done = subprocess.run(ninja, capture_output=True, text=True, check=False)
    killed = [line for line in done.stdout.splitlines() if "illed" in line]
    print(*killed, f"ninja ended with status {done.returncode}", sep="\n")
    seconds = time.monotonic() - began
    return f"ninja:  status {done.returncode} after {seconds:.0f} s, {len(killed)} compilers killed"


def stoker_way(out: Path, within: tuple[str, ...], *options: str) -> str:
    title(" ".join(["The same with stoker: stoker build", KILN.name, *options]))
    began = time.monotonic()
    build = [*within, "stoker", "build", str(KILN), "--out", str(out), *options]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    return f"stoker: a verified wheel after {time.monotonic() - began:.0f} s"


def use(folder: Path) -> str:
    title("The wheel, in an environment of its own")
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = str(folder / "venv/bin/python")
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", str(wheel)]
    subprocess.run(install, check=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        subprocess.run([python, "-c", TRY_IT], cwd=elsewhere, check=True)
    return f"        {os.path.relpath(wheel)}, {wheel.stat().st_size / 1e6:.1f} MB"


def title(text: str) -> None:
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    main()

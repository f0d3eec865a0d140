# ruff: noqa: T201
"""`make demo`: builds kiln/ under a memory limit that is too small for plain ninja.

    python examples/demo.py [FOLDER]

Everything is written to FOLDER, which is emptied first. The kernel enforces the limit if the demo
can create a memory cgroup (version 1 or 2, as root) or a scope of the user's systemd. Otherwise
only stoker observes it, through `--memory`.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

KILN = Path(__file__).parent / "kiln"
BIN = Path(sys.executable).parent
LIMIT = 1536 * 1024**2
GROUP = f"stoker-demo-{os.getpid()}"  # two demos do not fit into one limit
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
    os.environ["STOKER_CACHE"] = "none"  # each demo compiles everything
    print("kiln is a small project with generated operators, like PyTorch.")
    print("Three of its files need about 0.9 GB each to compile. The limit is 1.5 GiB.")
    summary = []
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the cgroup goes first
    try:
        if within := limited():
            summary.append(plain_ninja(folder / "plain", within))
            summary.append(with_stoker(folder / "dist", within))
        else:
            print("This user cannot create a memory cgroup (root or a user's systemd can), so the")
            print("kernel does not enforce the limit. stoker observes it through --memory.")
            summary.append(with_stoker(folder / "dist", (), "--memory", str(LIMIT)))
    finally:
        leave_group()
    summary.append(use(folder))
    summary.append(report(folder / "report.html"))
    title("Summary")
    print(*summary, sep="\n")


def limited() -> tuple[str, ...]:
    """Return a command prefix that applies the limit, or () if this user cannot set one."""
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
    """Return the cgroup folders to try, each with its files: the memory limit, then swap."""
    root = Path("/sys/fs/cgroup")
    return {
        root / "memory" / GROUP: {
            "memory.limit_in_bytes": LIMIT,
            "memory.memsw.limit_in_bytes": LIMIT,
        },
        root / GROUP: {"memory.max": LIMIT, "memory.swap.max": 0},
    }


def leave_group() -> None:
    """Remove the cgroup as soon as it is empty; the governor exits a moment after the build. What
    is left then, such as compilers of a build that was interrupted, is ended.
    """
    for group in groups():
        kill_at = time.monotonic() + 5
        while group.exists() and time.monotonic() < kill_at + 15:
            with suppress(OSError):
                group.rmdir()
            if time.monotonic() > kill_at:
                end_all(group)
            time.sleep(0.1)


def end_all(group: Path) -> None:
    with suppress(OSError):
        for process in (group / "cgroup.procs").read_text().split():
            os.kill(int(process), signal.SIGKILL)


def plain_ninja(build: Path, within: tuple[str, ...]) -> str:
    """Run cmake and ninja; ninja stops when the kernel kills a compiler. Return a summary line."""
    title(f"Without stoker: cmake -S {KILN.name} -B build -G Ninja && ninja -C build")
    began = time.monotonic()
    configure = ["cmake", "-S", str(KILN), "-B", str(build), "-G", "Ninja"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    # ninja's default on two CPUs, so that the demo does the same on every machine.
    ninja = [*within, "ninja", "-C", str(build), "-j4"]
    done = subprocess.run(ninja, capture_output=True, text=True, check=False)
    killed = [line for line in done.stdout.splitlines() if "illed" in line]
    print(*killed, f"ninja ended with status {done.returncode}", sep="\n")
    seconds = time.monotonic() - began
    return f"ninja:  status {done.returncode} after {seconds:.0f} s, {len(killed)} compilers killed"


def with_stoker(out: Path, within: tuple[str, ...], *options: str) -> str:
    """Build the same project to a wheel with stoker. Return a summary line."""
    title(" ".join(["With stoker: stoker build", KILN.name, *options]))
    began = time.monotonic()
    build = [*within, "stoker", "build", str(KILN), "--out", str(out), *options]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    return f"stoker: a verified wheel after {time.monotonic() - began:.0f} s"


def use(folder: Path) -> str:
    """Install the wheel into a new environment and call it. Return its file name and size."""
    title("The wheel, installed into a new environment")
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = str(folder / "venv/bin/python")
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", str(wheel)]
    subprocess.run(install, check=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        subprocess.run([python, "-c", TRY_IT], cwd=elsewhere, check=True)
    return f"        {os.path.relpath(wheel)}, {wheel.stat().st_size / 1e6:.1f} MB"


def report(page: Path) -> str:
    title("What the build did: stoker report")
    subprocess.run(["stoker", "report", "-o", str(page)], check=True, stdout=subprocess.DEVNULL)
    return f"        {os.path.relpath(page)}: open it in a browser"


def title(text: str) -> None:
    """Print a heading, before the output of the commands below it."""
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    main()

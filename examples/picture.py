# ruff: noqa: T201
"""`make picture`: draws the memory that both builds of the demo use, as an SVG.

    python examples/picture.py FILE

Runs the two builds of demo.py under the same limit and samples the memory of their cgroup, which
needs root. A cross marks each compiler that the kernel kills.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import demo

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 330, 60, 44, 50
INTERVAL_S = 0.1
GIB = 1024**3
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #57606a }
path, polyline { fill: none; stroke-width: 2 }
.axis, .limit { stroke: #8c959f; stroke-width: 1 }
.limit { stroke-dasharray: 6 4 }
path.ninja, polyline.ninja { stroke: #cf222e }
path.stoker, polyline.stoker { stroke: #0969da }
text.ninja { fill: #cf222e; font-weight: 600 }
text.stoker { fill: #0969da; font-weight: 600 }
@media (prefers-color-scheme: dark) { text { fill: #9198a1 } }
"""


class Sample(NamedTuple):
    """The memory of the cgroup at a moment, and how many processes the kernel has killed in it."""

    seconds: float
    memory: int
    kills: int


def main() -> None:
    if not (within := demo.limited()) or within[0] == "systemd-run":
        sys.exit("the picture needs a memory cgroup: run it as root")
    group = Path(within[-1])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["PATH"] = f"{demo.BIN}{os.pathsep}{os.environ['PATH']}"
        os.environ["STOKER_HOME"] = str(folder / "home")
        os.environ["STOKER_CACHE"] = "none"
        try:
            ninja = sampled(group, lambda: demo.plain_ninja(folder / "plain", within))
            stoker = sampled(group, lambda: demo.with_stoker(folder / "dist", within))
        finally:
            demo.leave_group()
    Path(sys.argv[1]).write_text(drawing(ninja, stoker))


def sampled(group: Path, build: Callable[[], str]) -> list[Sample]:
    """Run a build; return the samples taken meanwhile, with kills counted from its start."""
    samples: list[Sample] = []
    finished = threading.Event()
    began, before = time.monotonic(), counter(group, "oom_kill")

    def sample() -> None:
        while not finished.wait(INTERVAL_S):
            kills = counter(group, "oom_kill") - before
            memory = counter(group, "total_rss") or counter(group, "anon")
            samples.append(Sample(time.monotonic() - began, memory, kills))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        print(build())
    finally:
        finished.set()
        thread.join()
    return samples


def counter(group: Path, name: str) -> int:
    """Return a number that one of the group's files (of either cgroup version) holds, or 0."""
    for file in ("memory.stat", "memory.events", "memory.oom_control"):
        with suppress(OSError):
            for line in (group / file).read_text().splitlines():
                if line.split()[0] == name:
                    return int(line.split()[1])
    return 0


def drawing(ninja: list[Sample], stoker: list[Sample]) -> str:
    """Return the SVG of both curves, over the same axes."""
    failed = f"ninja fails: the kernel kills {ninja[-1].kills} compilers"
    built = f"stoker builds a verified wheel; {stoker[-1].kills} kills by the kernel"
    axes = Axes(max(ninja[-1].seconds, stoker[-1].seconds))
    floor, right, limit = HEIGHT - BOTTOM, WIDTH - 20, axes.y(demo.LIMIT)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{failed}. {built}.</title><style>{STYLE}</style>",
            text(LEFT, 16, failed, "ninja"),
            text(LEFT, 34, built, "stoker"),
            f'<path class="axis" d="M{LEFT},{TOP} V{floor} H{right}"/>',
            f'<path class="limit" d="M{LEFT},{limit:.1f} H{right}"/>',
            text(right - 150, limit - 5, f"memory limit: {demo.LIMIT / GIB:.1f} GiB"),
            *(text(8, axes.y(half * GIB / 2) + 4, f"{half / 2:.1f} GiB") for half in range(4)),
            *(text(axes.x(second) - 8, floor + 18, f"{second} s") for second in axes.ticks()),
            text(LEFT, HEIGHT - 8, "Memory of the whole build over time (drawn by `make picture`)"),
            *curve(axes, ninja, "ninja"),
            *curve(axes, stoker, "stoker"),
            "</svg>\n",
        ]
    )


class Axes(NamedTuple):
    """Where seconds and bytes lie in the picture."""

    longest_s: float

    def x(self, seconds: float) -> float:
        return LEFT + seconds / self.longest_s * (WIDTH - LEFT - 20)

    def y(self, memory: float) -> float:
        return HEIGHT - BOTTOM - memory / (1.1 * demo.LIMIT) * (HEIGHT - TOP - BOTTOM)

    def ticks(self) -> range:
        return range(0, int(self.longest_s) + 1, 5 if self.longest_s < 60 else 20)


def curve(axes: Axes, samples: list[Sample], kind: str) -> Iterator[str]:
    """Yield a line through all samples, and a cross for each that a kill follows."""
    points = [f"{axes.x(sample.seconds):.1f},{axes.y(sample.memory):.1f}" for sample in samples]
    yield f'<polyline class="{kind}" points="{" ".join(points)}"/>'
    for point, (before, after) in zip(points, pairwise(samples), strict=False):
        if after.kills > before.kills:
            yield f'<path class="{kind}" d="M{point} m-6,-6 l12,12 m0,-12 l-12,12"/>'


def text(left: float, top: float, words: str, kind: str = "") -> str:
    """Return words as an SVG element."""
    return f'<text x="{left:.0f}" y="{top:.0f}" class="{kind}">{words}</text>'


if __name__ == "__main__":
    main()

"""Draws docs/feasible.svg, the question that the governor asks: `python examples/feasible.py FILE`.

Two steps run that were measured before, and one that was not. A fourth one asks to start. Each
counts with the memory that it may use at each time, as the governor computes it; the fourth may
start because the sum stays within the room at every time.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from stoker.govern.policy import profile
from stoker.govern.policy.forecast import Forecast
from stoker.govern.policy.upper import expected, reach
from stoker.model.govern import Basis, Prediction, Request, Running, State

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 300, 70, 30, 46
SECONDS, GB, ROOM = 60, 10**9, 10 * 10**9
COLOURS = ("#0969da", "#1a7f37", "#bf8700", "#8250df")
NAMES = ("a kernel of nvcc, measured", "a compile of gcc, measured", "never measured", "may start")
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #57606a }
.axis, .limit { stroke: #8c959f; stroke-width: 1; fill: none }
.limit { stroke-dasharray: 6 4 }
.new { stroke: #8250df; stroke-width: 2; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) { text { fill: #9198a1 } }
"""


def measured(identity: int, peak: float, seconds: float, levels: Sequence[int]) -> Request:
    parts = tuple(levels[n * len(levels) // profile.PARTS] for n in range(profile.PARTS))
    prediction = Prediction(
        peak=round(peak * GB),
        high=round(peak * GB),
        seconds=seconds,
        profile=parts,
        basis=Basis.EXACT,
    )
    return Request(id=identity, asked=0.0, prediction=prediction)


def main() -> None:
    kernel = measured(1, 4.5, 50, (20, 60, 100, 30, 70, 90, 20, 10))
    compiling = measured(2, 1.5, 40, (30, 60, 80, 90, 95, 100))
    shipped = Prediction(peak=GB, high=2 * GB, basis=Basis.PRIOR)
    unknown = Running(
        request=Request(id=3, asked=0.0, prediction=shipped),
        started=-20.0,
        current=8 * GB // 10,
        peak=8 * GB // 10,
    )
    asking = measured(4, 3.0, 30, (10, 20, 30, 60, 90, 100))
    running = (
        Running(request=kernel, started=-15.0, current=round(2.5 * GB), peak=round(4.5 * GB)),
        Running(request=compiling, started=0.0),
    )
    state = State(now=0.0, cpus=8, limit=ROOM, used=0, running=(*running, unknown))
    if not Forecast(state, ROOM, usual=True).fits(asking):
        sys.exit("the picture is wrong: the step does not fit")
    layers = [
        [_at(running[0].request, second + 15.0) for second in range(SECONDS + 1)],
        [_at(compiling, float(second)) for second in range(SECONDS + 1)],
        [reach(unknown)] * (SECONDS + 1),
        [_at(asking, float(second)) for second in range(SECONDS + 1)],
    ]
    Path(sys.argv[1]).write_text(drawn(layers), encoding="utf-8")


def _at(request: Request, age: float) -> float:
    """Return the memory that a step may use at this age."""
    seconds = request.prediction.seconds or 0.0
    return expected(request.prediction)(age, age) if age < seconds else 0.0


def drawn(layers: Sequence[Sequence[float]]) -> str:
    below = [0.0] * (SECONDS + 1)
    parts = []
    for number, layer in enumerate(layers):
        above = [low + own for low, own in zip(below, layer, strict=True)]
        points = [*enumerate(above), *reversed(list(enumerate(below)))]
        shape = " ".join(f"{x(second):.1f},{y(memory):.1f}" for second, memory in points)
        new = ' class="new"' if number == len(layers) - 1 else ""
        parts.append(
            f'<polygon{new} points="{shape}" fill="{COLOURS[number]}" fill-opacity="0.35"/>'
        )
        place = TOP + 36 + 18 * (len(layers) - 1 - number)
        parts.append(
            f'<rect x="{x(43):.0f}" y="{place - 11}" width="12" height="12" '
            f'fill="{COLOURS[number]}" fill-opacity="0.5"/>'
            f'<text x="{x(43) + 18:.0f}" y="{place}">{NAMES[number]}</text>'
        )
        below = above
    bottom = HEIGHT - BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n'
        f"<style>{STYLE}</style>\n"
        + "\n".join(parts)
        + f'\n<path class="axis" d="M{LEFT} {TOP} V{bottom} H{WIDTH - 20}"/>\n'
        f'<path class="limit" d="M{LEFT} {y(ROOM):.1f} H{WIDTH - 20}"/>\n'
        f'<text x="{LEFT}" y="{y(ROOM) - 6:.0f}">room</text>\n'
        f'<text x="{LEFT}" y="{bottom + 18}">now</text>\n'
        f'<text x="{WIDTH - 130}" y="{bottom + 18}">in {SECONDS} seconds</text>\n'
        f'<text x="8" y="{TOP + 60}">memory</text>\n</svg>\n'
    )


def x(second: float) -> float:
    return LEFT + (WIDTH - 20 - LEFT) * second / SECONDS


def y(memory: float) -> float:
    bottom = HEIGHT - BOTTOM
    return bottom - (bottom - TOP - 14) * memory / ROOM


if __name__ == "__main__":
    main()

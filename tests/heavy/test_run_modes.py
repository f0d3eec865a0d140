"""Compiles that fit into a memory limit only because gcc collects its garbage more often."""

import subprocess
from pathlib import Path

import pytest

from governed import Build, finished
from memory_groups import MakeGroup
from stoker.model.govern import CompileMode, Reason
from stoker.model.runs import Outcome

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1200)]
MIB = 1 << 20
LIMIT = 270 * MIB
FUNCTIONS = 250
LOOP = """
  for (unsigned k = 0; k < n; k++) {{
    if (a[k] & {j} + 1) s += a[k] * ({j} + 3u) ^ s >> {j} % 7 + 1;
    else a[k] = s + a[(k + {j}) % n];
    if (s == {j} * 17) switch (a[0]) {{
      case 1: s++; break;
      case 2: s -= a[1]; break;
      case 7: s ^= 5;
    }}
  }}
"""


@pytest.fixture
def build(tmp_path: Path, stoker_home: Path) -> Build:
    return Build(tmp_path / "build", stoker_home)


@pytest.fixture
def source(build: Build) -> Path:
    """Make a file for which gcc takes 300 MB by default, most of it garbage."""
    loops = "".join(LOOP.format(j=j) for j in range(12))
    functions = (
        f"unsigned f{n}(unsigned *a, unsigned n) {{ unsigned s = {n};{loops} return s; }}\n"
        for n in range(FUNCTIONS)
    )
    file = build.folder / "large.c"
    file.write_text("".join(functions))
    return file


@pytest.mark.timeout(1800)
def test_a_step_that_fits_only_in_the_low_mode(
    build: Build, source: Path, make_group: MakeGroup
) -> None:
    group = make_group("run")
    group.set_limit(LIMIT)
    rule = "rule cc\n  command = gcc -O2 -c $in -o $out\nbuild large.o: cc large.c\n"
    (build.folder / "build.ninja").write_text(rule)
    done = finished(build.start(prefix=group.enter), seconds=900)
    assert done.status == 0, done
    first, last = build.attempts()
    assert (first.outcome, first.record.mode) == (Outcome.OOM, CompileMode.DEFAULT)
    assert (last.outcome, last.record.mode) == (Outcome.DONE, CompileMode.LOW)
    assert last.explanation is not None
    assert last.explanation.mode_reason is Reason.TOO_LARGE
    plain = build.folder / "plain.o"
    subprocess.run(["gcc", "-O2", "-c", source, "-o", plain], check=True)
    assert (build.folder / "large.o").read_bytes() == plain.read_bytes()

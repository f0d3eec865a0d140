"""How many jobs a command under `stoker run` gets, and when its own number stays."""

from pathlib import Path

import pytest

from conftest import Need
from governed import Build
from stoker.govern.client.running import jobs_of

# Steps that end only when eight of them have begun: with fewer jobs at once they give up.
TOGETHER = """
touch "begun-$1"
for i in $(seq 600); do
    [ $(ls begun-* | wc -l) -ge 8 ] && exit 0
    sleep 0.05
done
exit 1
"""


AT_ONCE = ("--policy", "fixed:8")  # as many as the steps above want


@pytest.fixture
def together(build: Build) -> Build:
    """A build that ends well only if eight jobs run at once."""
    for number in range(8):
        build.step(f"step{number}", f"set -- {number}\n({TOGETHER})")
    steps = " ".join(f"step{number}" for number in range(8))
    (build.folder / "Makefile").write_text(
        f"all: {steps}\nstep%:\n\t./gcc ./$@.sh\n"
        "through-ninja:\n\tninja -j2\nthrough-make:\n\t$(MAKE) all\n"
    )
    return build


@pytest.mark.parametrize(
    "words",
    [
        ("ninja", "-j2"),
        ("make", "-j2"),
        ("make", "through-ninja"),
        ("make", "-j2", "through-make"),
        ("sh", "-c", "ninja -j2"),
    ],
    ids=" ".join,
)
def test_the_jobs_of_a_command_give_way_to_the_window(
    together: Build, words: tuple[str, ...], need: Need
) -> None:
    need(words[0])
    done = together.run(*words, options=AT_ONCE)
    assert done.status == 0, done
    assert len(together.made()) == 8


SERIAL = "all: a b\na: ; sleep 0.2; touch a\nb: ; test -e a\n"


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (("make",), ""),
        (("make", "-j4", "--jobs=1"), ""),
        (("make",), "-k -j1"),
        (("sh", "-c", "ninja -j 1"), ""),
    ],
)
def test_one_job_stays_one_job(
    build: Build, need: Need, words: tuple[str, ...], flags: str
) -> None:
    """Such a build may not be safe in parallel."""
    need("make")
    (build.folder / "Makefile").write_text(SERIAL)
    (build.folder / "build.ninja").write_text(
        "rule r\n command = $run\nbuild a: r\n run = sleep 0.2; touch a\n"
        "build b: r\n run = test -e a && touch b\n"
    )
    done = build.run(*words, options=AT_ONCE, **({"MAKEFLAGS": flags} if flags else {}))
    assert done.status == 0, done


def test_respected_jobs_reach_nested_makes(build: Build, need: Need) -> None:
    """Three jobs that run at once would meet."""
    need("make")
    meet = "mkdir lock && sleep 0.2 && rmdir lock"
    (build.folder / "Makefile").write_text(
        "all: ; $(MAKE) -f inner -j1 && ninja -j1\n.PHONY: all\n"
    )
    (build.folder / "inner").write_text(f"all: a b c\na b c: ; {meet}\n")
    (build.folder / "build.ninja").write_text(
        f"rule r\n command = {meet} && touch $out\n" + "".join(f"build x{n}: r\n" for n in "abc")
    )
    done = build.run("make", options=[*AT_ONCE, "--respect-jobs"])
    assert done.status == 0, done


def test_jobs_in_makes_own_variable_give_way_too(together: Build, need: Need) -> None:
    need("make")
    done = together.run("make", options=AT_ONCE, MAKEFLAGS="-k -j2")
    assert done.status == 0, done


def test_the_jobs_are_the_cpus_if_they_are_to_be_respected(build: Build) -> None:
    build.step("one", "true")
    assert build.summary("ninja", "-j1", options=["--respect-jobs"]).cpus == 1


@pytest.mark.parametrize(
    ("line", "jobs"),
    [
        ("ninja", None),
        ("ninja -j8", 8),
        ("ninja -j 8 -v", 8),
        ("make --jobs=8", 8),
        ("cmake --build . --parallel 8", 8),
        ("make -j", None),
        ("ninja -j0", None),
        ("echo 8 8", None),
        ("ninja -jx", None),
    ],
)
def test_jobs_of_a_command(line: str, jobs: int | None) -> None:
    assert jobs_of(line.split()) == jobs


def test_nested_builds_ask_the_same_governor(build: Build, tmp_path: Path, need: Need) -> None:
    need("make")
    inner = Build(tmp_path / "inner", build.home)
    inner.step("in1", "true")
    inner.step("in2", "true")
    made = tmp_path / "made"
    made.mkdir()
    (made / "Makefile").write_text("all: a b\na b:\n\tcc -c -o $@ ../source.c\n")
    (tmp_path / "source.c").write_text("int one(void) { return 1; }\n")
    build.step("ninja-in-ninja", f"ninja -C {inner.folder}", before="")
    build.step("make-in-ninja", f"make -C {made}", before="")
    build.step("own", "true")
    assert build.summary().steps == 7  # with the scripts that start ninja and make


def test_a_step_within_a_step_does_not_ask_again(build: Build) -> None:
    build.step("outer", f"'{build.launcher}' sh -c '\"$0\" true' '{build.launcher}'")
    assert build.summary(options=["--cpus", "1"]).steps == 1

"""`stoker run --` in front of a command changes nothing else: compared with the plain command."""

import subprocess
from pathlib import Path

import pytest

from conftest import Need
from governed import STOKER, Build


@pytest.fixture
def by_default(build: Build) -> Build:
    """A build folder without any settings of the tests' own."""
    del build.environment["STOKER_CACHE"]
    return build


@pytest.mark.parametrize(
    "source",
    [
        '#include "h.h"\nint f(void) { return H; }\n',
        "#if __has_include(<h.h>)\nint f;\n#endif\nint g;\n",
    ],
)
@pytest.mark.parametrize("cache", ["", "ccache"])
def test_a_new_header_in_an_earlier_folder_is_used(
    by_default: Build, need: Need, tmp_path: Path, source: str, cache: str
) -> None:
    """ccache by itself would return the old object, and it is only used if it was asked for."""
    need("ccache")
    by_default.environment["STOKER_CACHE"] = cache
    first, second = tmp_path / "out/a", tmp_path / "out/b"
    for folder in (first, second):
        folder.mkdir(parents=True)
    if "return H" in source:
        (second / "h.h").write_text("#define H 1\n")
    (by_default.folder / "a.c").write_text(source)
    words = ("gcc", f"-I{first}", f"-I{second}", "-c", "a.c", "-o", "a.o")
    for _ in range(2):
        assert by_default.run(*words).status == 0
    before = (by_default.folder / "a.o").read_bytes()
    (first / "h.h").write_text("#define H 2\n")
    assert by_default.run(*words).status == 0
    assert (by_default.folder / "a.o").read_bytes() != before


def plain_and_governed(build: Build, script: str) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
    """Return status and output of bash with a script in which $RUN precedes a command."""
    plain, governed = (
        subprocess.run(
            ["bash", "-c", script],
            cwd=build.folder,
            env=build.environment | {"RUN": run},
            stdout=subprocess.PIPE,
            timeout=100,
            check=False,
        )
        for run in ("", f"{STOKER} run --progress quiet --")
    )
    return (plain.returncode, plain.stdout), (governed.returncode, governed.stdout)


@pytest.mark.parametrize(
    "script",
    [
        "$RUN cat <(echo substituted)",
        "exec 7>held; $RUN sh -c 'echo text >&7; ls /proc/self/fd'; cat held",
        "exec 9>lock; flock 9; $RUN flock -n 9 && echo ours",
        "$RUN ./text one two; echo $?",
        "$RUN bin/../text one; echo $?",
        'umask 0137; $RUN sh -c "umask; touch made"; stat -c %a made',
        "trap '' HUP; $RUN grep SigIgn /proc/self/status",
        "printf 'a\\nb\\n' | $RUN head -1; $RUN cat </dev/null; echo $?",
        "for n in 1 2; do $RUN sh -c 'kill -INT $$'; echo $? $n; done",
        "$RUN sh -c 'yes | head -1'; echo ${PIPESTATUS[@]}",
        "$RUN yes | head -1; echo ${PIPESTATUS[@]}",
    ],
)
def test_what_a_command_inherits(build: Build, need: Need, script: str) -> None:
    need("bash")
    (build.folder / "bin").mkdir()
    (build.folder / "text").write_text('echo "a text without an interpreter: $*"\n')
    (build.folder / "text").chmod(0o755)
    plain, governed = plain_and_governed(build, script)
    assert governed == plain

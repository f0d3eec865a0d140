"""With a cache, a compile starts the cache; the compiler that the cache starts is the step."""

from pathlib import Path

import pytest

from unit.launcher.preloaded import Preloaded, build

# Writes down its words, and starts the compiler unless it is told that it has the result.
WRAPPER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words)
{
    FILE *log = fopen(getenv("WRAPPER_LOG"), "a");
    for (int i = 1; i < count; i++)
        fprintf(log, "%s%c", words[i], i + 1 < count ? ' ' : '\n');
    const char *files = getenv("CCACHE_EXTRAFILES");
    if (files)
        fprintf(log, "%s\n", files);
    fclose(log);
    if (getenv("WRAPPER_HIT"))
        return 0;
    words[0] = getenv("CCACHE_PREFIX");
    if (words[0])
        execv(words[0], words);
    execv(words[1], words + 1);
    return 97;
}
"""


@pytest.fixture
def wrapped(preloaded: Preloaded) -> Preloaded:
    wrapper = build(preloaded.folder, "wrapper", WRAPPER)
    log = preloaded.folder / "wrapper.log"
    preloaded.environment |= {"STOKER_WRAPPER": str(wrapper), "WRAPPER_LOG": str(log)}
    (preloaded.folder / "a.c").write_text("int main(void) { return 0; }\n")
    return preloaded


def calls(wrapped: Preloaded) -> list[str]:
    log = wrapped.folder / "wrapper.log"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def nothing(wrapped: Preloaded, name: str) -> Path:
    """A compiler that does nothing."""
    return build(wrapped.folder, name, "int main() { return 0; }")


def test_a_compile_starts_the_wrapper_and_what_that_starts_is_the_step(wrapped: Preloaded) -> None:
    wrapped.output("sh", "-c", "gcc -c a.c -o a.o; true")
    (call,) = calls(wrapped)
    assert call.endswith("/gcc -c a.c -o a.o")
    assert wrapped.outputs() == ["a.o"]


def test_a_hit_is_no_step(wrapped: Preloaded) -> None:
    wrapped.environment["WRAPPER_HIT"] = "1"
    wrapped.output("sh", "-c", "gcc -c a.c -o a.o; true")
    assert len(calls(wrapped)) == 1
    assert wrapped.governed() == []


def test_links_and_questions_do_not_start_the_wrapper(wrapped: Preloaded) -> None:
    wrapped.output("sh", "-c", "gcc a.c -o a; gcc --version; gcc -E a.c; true")
    assert calls(wrapped) == []
    assert wrapped.outputs() == ["a"]


def test_a_wrapper_that_is_gone_is_left_out(wrapped: Preloaded) -> None:
    (wrapped.folder / "wrapper").unlink()
    wrapped.output("sh", "-c", "gcc -c a.c -o a.o; true")
    assert wrapped.outputs() == ["a.o"]


@pytest.mark.parametrize(
    ("words", "cached"),
    [
        ("-c a.cu -o a.o", False),  # ccache would compare preprocessed text
        ("-MD -MF a.d -c a.cu -o a.o", True),
        ("--generate-dependencies-with-compile --dependency-output a.d -c a.cu -o a.o", True),
    ],
)
def test_nvcc_is_cached_only_with_a_list_of_headers(
    wrapped: Preloaded, words: str, cached: bool
) -> None:
    nvcc = nothing(wrapped, "nvcc")
    wrapped.output("sh", "-c", f"{nvcc} {words}; true")
    expected = [f"{nvcc} -MD -MF a.d -c a.cu -o a.o"] if cached else []
    assert calls(wrapped) == expected
    assert len(wrapped.governed()) == 1


def test_flags_of_nvcc_that_the_cache_does_not_know_of_prevent_caching(wrapped: Preloaded) -> None:
    nvcc = nothing(wrapped, "nvcc")
    line = f"{nvcc} -MD -MF a.d -c a.cu -o a.o; true"
    wrapped.output("sh", "-c", f"NVCC_APPEND_FLAGS=-O1 {line}")
    assert calls(wrapped) == []
    wrapped.environment |= {"NVCC_APPEND_FLAGS": "-O1", "STOKER_NVCC_APPEND_FLAGS": "-O1"}
    wrapped.output("sh", "-c", line)
    assert len(calls(wrapped)) == 1


def test_the_profile_beside_nvcc_is_part_of_what_the_cache_compares(wrapped: Preloaded) -> None:
    (wrapped.folder / "cuda").mkdir()
    nvcc = nothing(wrapped, "cuda/nvcc")
    link = wrapped.folder / "nvcc"
    link.symlink_to(nvcc)
    words = "-MD -c a.cu -o a.o; gcc -c a.c -o a.o; true"
    wrapped.output("sh", "-c", f"{link} {words}")
    assert len(calls(wrapped)) == 2
    profile = wrapped.folder / "cuda/nvcc.profile"
    profile.touch()
    wrapped.output("sh", "-c", f"{link} {words}")
    assert calls(wrapped)[1] == str(profile)
    wrapped.environment["CCACHE_EXTRAFILES"] = "/own"
    wrapped.output("sh", "-c", f"{link} {words}")
    assert calls(wrapped)[1::2] == [f"/own:{profile}", "/own"]


@pytest.mark.parametrize(
    ("start", "governed"),
    [
        ('gcc -O1 "$@"', "gcc -O1 -c a.c -o a.o"),
        ('gcc $(cat "${0%/*}/flags") "$@"', "gcc -O0 -c a.c -o a.o"),
    ],
)
def test_a_cache_sees_the_compile_that_a_script_starts(
    wrapped: Preloaded, start: str, governed: str
) -> None:
    """So it need not know the script, and what that reads."""
    folder = wrapped.folder / "bin"
    folder.mkdir()
    (folder / "flags").write_text("-O0")
    script = folder / "cc"
    script.write_text(f"#!/bin/sh\n{start}\n")
    script.chmod(0o755)
    wrapped.output("sh", "-c", f"{script} -c a.c -o a.o; true")
    (call,) = calls(wrapped)
    assert call.endswith(f"/{governed}")
    assert len(wrapped.governed()) == 1


@pytest.mark.parametrize("limit", ["-f 0", "-f 100", "-v 1000000", "-d 1000000", "-t 100"])
def test_a_limit_for_the_compiler_is_no_limit_for_a_cache(wrapped: Preloaded, limit: str) -> None:
    wrapped.run("sh", "-c", f"ulimit {limit}; gcc -c a.c -o a.o; true")
    assert calls(wrapped) == []


# -- a ccache that is linked statically --------------------------------------------------------
# Its authors distribute it so. The library cannot be in it; its prefix names the launcher.


@pytest.fixture
def static(wrapped: Preloaded) -> Preloaded:
    cache = build(wrapped.folder, "ccache", WRAPPER, "-static")
    wrapped.environment["STOKER_WRAPPER"] = str(cache)
    return wrapped


def test_a_static_ccache_starts_the_launcher_by_itself(static: Preloaded) -> None:
    static.output("sh", "-c", "gcc -c a.c -o a.o; true")
    assert len(calls(static)) == 1
    assert static.outputs() == ["a.o"]
    static.environment["WRAPPER_HIT"] = "1"
    static.output("sh", "-c", "gcc -c a.c -o a.o; true")
    assert len(calls(static)) == 1
    assert static.governed() == []


@pytest.mark.parametrize("environment", ["", "env -i PATH=/usr/bin:/bin WRAPPER_LOG=wrapper.log"])
def test_a_static_ccache_of_the_build_itself(static: Preloaded, environment: str) -> None:
    """Behind its own name, and behind a compiler's, as /usr/lib/ccache has it."""
    del static.environment["STOKER_WRAPPER"]
    (static.folder / "bin").mkdir()
    (static.folder / "bin/gcc").symlink_to(static.folder / "ccache")
    static.output("sh", "-c", f"{environment} ./ccache /usr/bin/gcc -c a.c -o a.o; true")
    assert len(calls(static)) == 1
    assert static.governed() == [["/usr/bin/gcc", "-c", "a.c", "-o", "a.o"]]
    words = "/usr/bin/gcc -c a.c -o b.o"  # our stand-in does not search for the compiler
    static.output("sh", "-c", f"{environment} bin/gcc {words}; true")
    assert static.outputs() == ["b.o"]


def test_a_prefix_of_the_users_own_stays(static: Preloaded) -> None:
    static.environment["CCACHE_PREFIX"] = "/usr/bin/env"
    static.output("sh", "-c", "gcc -c a.c -o a.o; true")
    assert calls(static) == []
    assert static.outputs() == ["a.o"]
    static.output("sh", "-c", "./ccache /usr/bin/gcc -c a.c -o a.o; true")
    assert calls(static) == ["/usr/bin/gcc -c a.c -o a.o"]

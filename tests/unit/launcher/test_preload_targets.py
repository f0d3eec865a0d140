"""GPU targets that are left out of commands of nvcc, before a cache or the governor sees them."""

from pathlib import Path

import pytest

from unit.launcher.preloaded import TAKE, Preloaded, build

GENCODE = "-gencode arch=compute_{0},code=sm_{0}"
OLD, NEW = GENCODE.format(75), GENCODE.format(90)
# Writes down its words.
SAYS = r"""
#include <stdio.h>
int main(int count, char **words)
{
    FILE *said = fopen("said", "w");
    for (int i = 1; i < count; i++)
        fprintf(said, "%s%c", words[i], i + 1 < count ? ' ' : 0);
    fclose(said);
    return 0;
}
"""


@pytest.fixture
def leaving_out(preloaded: Preloaded) -> Preloaded:
    """Programs whose nvcc writes down its words, and which leave 7.5 and PTX of 9.0 out."""
    build(preloaded.folder, "nvcc", SAYS)
    left_out = "arch=compute_75,code=sm_75 arch=compute_90,code=compute_90"
    preloaded.environment["STOKER_LEFT_OUT_TARGETS"] = left_out
    return preloaded


def compiled(programs: Preloaded, words: str, start: str = "./nvcc") -> str:
    """Return the words that nvcc gets."""
    programs.output("sh", "-c", f"{start} {words} -c a.cu -o a.o; true")
    assert len(programs.governed()) == 1
    return said(programs).removesuffix(" -c a.cu -o a.o")


def said(programs: Preloaded) -> str:
    return (programs.folder / "said").read_text().rstrip("\0")


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (f"{OLD} {NEW}", NEW),
        (f"{NEW} -O2 {OLD} -G", f"{NEW} -O2 -G"),
        (f"--generate-code=arch=compute_75,code=sm_75 {NEW}", NEW),
        (f"--generate-code arch=compute_75,code=sm_75 {NEW}", NEW),
        (f"-gencode=arch=compute_75,code=sm_75 {NEW}", NEW),
        (f"{NEW} -gencode arch=compute_90,code=compute_90", NEW),
        (f"{NEW} -gencode arch=compute_90,code=sm_90a", None),
        (f"{NEW} -gencode arch=compute_75,code=sm_75a", None),
        (f"{NEW} -gencode arch=compute_75,code=sm_7", None),
        (f"{OLD}", None),
        (f"{OLD} -arch=sm_90", None),
        (f"-Xcompiler {NEW.split()[1]} {OLD}", None),
        (f"{NEW} -DX=-gencode", None),
    ],
)
def test_words_of_listed_targets_are_left_out_unless_none_would_remain(
    leaving_out: Preloaded, given: str, left: str | None
) -> None:
    assert compiled(leaving_out, given) == (left or given)


def test_an_option_without_a_value_is_left_to_nvcc(leaving_out: Preloaded) -> None:
    leaving_out.output("sh", "-c", f"./nvcc -c a.cu -o a.o {NEW} {OLD} -gencode; true")
    assert said(leaving_out).endswith(f"-o a.o {NEW} -gencode")


def test_other_compilers_are_not_changed(leaving_out: Preloaded) -> None:
    build(leaving_out.folder, "clang++", SAYS)
    assert compiled(leaving_out, f"{OLD} {NEW}", "./clang++") == f"{OLD} {NEW}"


def test_a_new_environment_leaves_the_same_out(leaving_out: Preloaded) -> None:
    program = build(leaving_out.folder, "starts", STARTS_NVCC)
    leaving_out.output(program)
    assert len(leaving_out.governed()) == 1
    assert "code=sm_75" not in said(leaving_out)


STARTS_NVCC = r"""
#include <unistd.h>
int main(void)
{
    char *words[] = {"./nvcc", "-gencode", "arch=compute_75,code=sm_75", "-gencode",
                     "arch=compute_90,code=sm_90", "-c", "a.cu", "-o", "a.o", 0}, *none[] = {0};
    return execve("./nvcc", words, none);
}
"""

# Writes down its words, as a cache would use them for a key, and starts the compiler.
CACHE = (
    TAKE
    + r"""
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words)
{
    take();
    FILE *key = fopen("key", "w");
    for (int i = 1; i < count; i++)
        fprintf(key, "%s ", words[i]);
    fclose(key);
    return execv(words[1], words + 1);
}
"""
)


def key(folder: Path) -> str:
    return (folder / "key").read_text()


def test_a_cache_of_stoker_sees_the_command_of_the_compiler(leaving_out: Preloaded) -> None:
    cache = build(leaving_out.folder, "cache", CACHE)
    leaving_out.environment["STOKER_WRAPPER"] = str(cache)
    depends = "-MD -MF a.d"
    assert compiled(leaving_out, f"{depends} {OLD} {NEW}") == f"{depends} {NEW}"
    assert "sm_75" not in key(leaving_out.folder)
    assert "sm_90" in key(leaving_out.folder)


def test_a_cache_of_the_user_sees_the_command_of_the_compiler(leaving_out: Preloaded) -> None:
    build(leaving_out.folder, "sccache", CACHE)
    assert compiled(leaving_out, f"{OLD} {NEW}", "./sccache ./nvcc") == NEW
    assert "sm_75" not in key(leaving_out.folder)


def test_what_a_cache_was_told_past_the_library_stays(leaving_out: Preloaded) -> None:
    cache = build(leaving_out.folder, "sccache", CACHE)
    # The words of the cache are hidden from the library, as they are in a static program.
    hidden = build(leaving_out.folder, "hidden", STARTS_CACHE)
    leaving_out.output(hidden, cache)
    assert len(leaving_out.governed()) == 1
    assert "code=sm_75" in said(leaving_out)
    assert "sm_75" in key(leaving_out.folder)


STARTS_CACHE = r"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
extern char **environ;
int main(int count, char **words)
{
    char *own[] = {"sccache", "./nvcc", "-gencode", "arch=compute_75,code=sm_75", "-gencode",
                   "arch=compute_90,code=sm_90", "-c", "a.cu", "-o", "a.o", 0};
    return syscall(SYS_execve, words[1], own, environ);
}
"""

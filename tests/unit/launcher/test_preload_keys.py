"""A cache compares compilers by all programs and libraries that decide about their objects."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Need
from stoker.cache.keys import compiler_keys
from unit.launcher.preloaded import TAKE, Preloaded, build

# Writes down how it is told to compare compilers, and starts the compiler.
CACHE = (
    TAKE
    + r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **words)
{
    take();
    const char *said = NULL;
    for (char **entry = environ; *entry; entry++) /* as ccache does: the last one counts */
        if (strncmp(*entry, "CCACHE_EXTRAFILES=", 18) == 0)
            said = *entry + 18;
    if (!said)
        said = getenv("SCCACHE_C_CUSTOM_CACHE_BUSTER");
    const char *check = NULL;
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, "CCACHE_COMPILERCHECK=", 21) == 0)
            check = *entry + 21;
    FILE *log = fopen(getenv("CACHE_LOG"), "a");
    fprintf(log, "%s\n", said ? said : check);
    fclose(log);
    const char *name = strrchr(words[0], '/');
    if (!strstr(name ? name : words[0], "cache"))
        execv("/bin/true", words); /* under the name of a compiler */
    execvp(words[1], words + 1);
    return 97;
}
"""
)
# nvcc says where its programs are; all else it does at once.
NVCC = r"""
#include <stdio.h>
#include <string.h>

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "--dryrun") == 0)
        printf("#$ TOP=FOLDER\n#$ PATH=FOLDER\n");
    return 0;
}
"""
KEY = 40

Keyed = Callable[[str], list[str]]


@pytest.fixture
def governed(preloaded: Preloaded) -> Preloaded:
    keys = compiler_keys()
    preloaded.environment |= {
        "STOKER_WRAPPER": str(build(preloaded.folder, "ccache", CACHE)),
        "CACHE_LOG": str(preloaded.folder / "cache.log"),
        "CCACHE_COMPILERCHECK": "content",
        "STOKER_COMPILER_KEYS": str(preloaded.folder / "keys"),
        "STOKER_COMPILER_KEY": keys.program,
        "STOKER_PYTHON": keys.python,
    }
    (preloaded.folder / "a.c").write_text("int a;\n")
    return preloaded


@pytest.fixture
def keyed(governed: Preloaded) -> Keyed:
    """Return how the cache is to compare the compilers of a command line."""

    def compiled(line: str) -> list[str]:
        governed.output("sh", "-c", f"{line}; true")
        log = governed.folder / "cache.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    return compiled


def key_of(said: str) -> str:
    """Return the key in the only file that is named."""
    (key,) = keys_of(said)
    return key


def keys_of(said: str) -> list[str]:
    """Return what the named files contain, without those of the user."""
    keys = [Path(name).read_text() for name in said.split(":") if name != "/own"]
    assert all(len(key) == KEY for key in keys)
    return keys


def copied_gcc(folder: Path) -> Path:
    """Return a gcc that starts a cc1 of its own, which is a script."""
    ask = ("-print-prog-name=cc1", "-dumpmachine")
    cc1, machine = (subprocess.check_output(["gcc", one], text=True).strip() for one in ask)
    if not cc1.startswith("/"):
        pytest.skip("this gcc has no cc1 of its own")
    inner = folder / "tree/lib/gcc" / machine / Path(cc1).parent.name
    inner.mkdir(parents=True)
    (inner / "cc1").write_text(f'#!/bin/sh\nexec {cc1} "$@"\n')
    (inner / "cc1").chmod(0o755)
    (folder / "tree/bin").mkdir()
    shutil.copy2(shutil.which("gcc") or "", folder / "tree/bin/gcc")
    return folder / "tree/bin/gcc"


def test_another_program_of_the_same_driver_is_another_compiler(
    governed: Preloaded, keyed: Keyed, need: Need
) -> None:
    need("gcc")
    gcc = copied_gcc(governed.folder)
    line = f"{gcc} -c a.c -o a.o"
    first, again = (key_of(said) for said in keyed(f"{line}; {line}"))
    cc1 = next(governed.folder.glob("tree/lib/gcc/*/*/cc1"))
    text = cc1.read_text()
    cc1.write_text(f"{text}# another\n")
    (changed,) = map(key_of, keyed(line))
    cc1.write_text(text)
    (back,) = map(key_of, keyed(line))
    assert first == again == back != changed
    assert governed.outputs() == ["a.o"] * 4


def test_a_link_to_the_folder_of_another_compiler(
    governed: Preloaded, keyed: Keyed, need: Need
) -> None:
    """A hard link of the driver is the same file, but it starts another cc1."""
    need("gcc")
    gcc = copied_gcc(governed.folder)
    tree, other = governed.folder / "tree", governed.folder / "other"
    shutil.copytree(tree, other)
    (other / "bin/gcc").unlink()
    (other / "bin/gcc").hardlink_to(gcc)
    cc1 = next(other.glob("lib/gcc/*/*/cc1"))
    cc1.write_text(f"{cc1.read_text()}# another\n")
    link = governed.folder / "link"
    keys: list[str] = []
    for target in (tree, other, tree):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        keys += map(key_of, keyed("link/bin/gcc -c a.c -o a.o"))
    assert keys[0] == keys[2] != keys[1]


def test_a_program_that_is_added(governed: Preloaded, keyed: Keyed, need: Need) -> None:
    need("gcc")
    gcc = copied_gcc(governed.folder)
    machine = subprocess.check_output(["gcc", "-dumpmachine"], text=True).strip()
    line = f"{gcc} -c a.c -o a.o"
    (first,) = map(key_of, keyed(line))
    place = governed.folder / "tree" / machine / "bin"
    place.mkdir(parents=True)
    shutil.copy2(shutil.which("as") or "", place / "as")
    (added,) = map(key_of, keyed(line))
    (place / "as").unlink()
    (removed,) = map(key_of, keyed(line))
    assert first == removed != added


def test_a_compiler_is_identified_once(governed: Preloaded, keyed: Keyed) -> None:
    """The first compiles of a build are many, and all later ones only look at the record."""
    log = governed.folder / "identified.log"
    script = governed.folder / "python"
    script.write_text(f'#!/bin/sh\necho "$6" >> {log}\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    governed.environment["STOKER_PYTHON"] = str(script)
    said = keyed("for n in 1 2 3 4; do gcc -c a.c -o $n.o & done; wait; gcc -c a.c -o 5.o")
    assert len(set(map(key_of, said))) == 1
    assert len(said) == 5
    assert 1 <= len(log.read_text().splitlines()) <= 4
    keyed("gcc -c a.c -o 6.o")
    assert len(log.read_text().splitlines()) <= 4
    assert len(list((governed.folder / "keys").glob("?" * 16))) == 1


@pytest.mark.parametrize("relative", [False, True])
def test_libraries_are_part_of_a_compiler(
    governed: Preloaded, keyed: Keyed, need: Need, relative: bool
) -> None:
    """A search path that depends on the current folder has a record for each folder."""
    need("clang")
    lines = subprocess.check_output(
        [shutil.which("clang") or ""], env={"LD_TRACE_LOADED_OBJECTS": "1"}, text=True
    )
    found = [line.split() for line in lines.splitlines() if "libLLVM" in line]
    if not found:
        pytest.skip("this clang is linked statically")
    name, _, path, _ = found[0]
    for folder in ("one", "two"):
        inner = governed.folder / folder
        (inner / "lib").mkdir(parents=True)
        shutil.copy(governed.folder / "a.c", inner)
        shutil.copy(path, inner / "lib" / name)
    with (governed.folder / "two/lib" / name).open("ab") as stream:
        stream.write(b"another")
    where = "lib" if relative else "$PWD/lib"
    line = f"LD_LIBRARY_PATH={where} clang -c a.c -o a.o"
    one, two = map(key_of, keyed(f"(cd one; {line}); (cd two; {line})"))
    plain, usual = map(key_of, keyed(f"clang -c a.c -o a.o; (cd one; {line})"))
    assert one == plain == usual != two


@pytest.mark.parametrize(
    "options",
    ["-ccbin=bin/g++", "--compiler-bindir bin/g++", "-ccbin=bin", "NVCC_CCBIN", "PATH", ""],
)
def test_the_compiler_that_nvcc_starts_is_a_part_of_it(
    governed: Preloaded, keyed: Keyed, options: str
) -> None:
    folder = governed.folder / "cuda"
    (governed.folder / "bin").mkdir()
    folder.mkdir()
    nvcc = build(folder, "nvcc", NVCC.replace("FOLDER", str(folder)))
    for name in ("cicc", "cudafe++", "fatbinary", "ptxas"):
        build(folder, name, "int main(void) { return 0; }")
    for number, name in enumerate(("gcc", "g++")):
        build(governed.folder / "bin", name, f"int main(void) {{ return {number} * 0; }}")
    variable = {"NVCC_CCBIN": "NVCC_CCBIN=bin/g++", "PATH": 'PATH="$PWD/bin:$PATH"'}.get(options)
    words = options if variable is None else ""
    line = f"{variable or ''} {nvcc} {words} -MD -c a.cu -o a.o"
    host = "bin/g++" if options.endswith(("g++", "CCBIN")) else "bin/gcc" if options else "gcc"
    governed.environment["CCACHE_EXTRAFILES"] = "/own"
    nvccs = []
    for change in ("nothing", "profile", "ptxas"):
        if change == "profile":
            (folder / "nvcc.profile").write_text("INCLUDES += -DA\n")
        if change == "ptxas":
            build(folder, "ptxas", "int main(void) { return 1; }")
        (said,) = keyed(line)
        assert said.startswith("/own:")
        own, of_host = keys_of(said)
        assert of_host == key_of(keyed(f"{host} -c a.c -o a.o")[0])
        nvccs.append(own)
    assert len(set(nvccs)) == 3


def test_a_compiler_that_cannot_be_identified_is_not_cached(
    governed: Preloaded, keyed: Keyed
) -> None:
    nvcc = build(governed.folder, "nvcc", "int main(void) { return 0; }")
    assert keyed(f"{nvcc} -MD -c a.cu -o a.o") == []
    governed.environment["STOKER_PYTHON"] = "/nowhere/python"
    assert keyed("gcc -c a.c -o b.o") == []
    assert governed.outputs() == ["a.o", "b.o"]


@pytest.mark.parametrize("check", ["mtime", "%compiler% --version"])
def test_users_say_how_ccache_compares_compilers(
    governed: Preloaded, keyed: Keyed, check: str
) -> None:
    governed.environment["CCACHE_COMPILERCHECK"] = check
    assert keyed("gcc -c a.c -o a.o") == [check]
    assert not (governed.folder / "keys").exists()


def test_sccache_takes_the_key_as_well(governed: Preloaded, keyed: Keyed) -> None:
    governed.environment["STOKER_WRAPPER"] = str(build(governed.folder, "sccache", CACHE))
    del governed.environment["CCACHE_COMPILERCHECK"]
    (said,) = keyed("gcc -c a.c -o a.o")
    assert len(said) == KEY


def test_a_ccache_of_the_user(governed: Preloaded, keyed: Keyed) -> None:
    """Under the name of a compiler, ccache itself finds the compiler: we do not know which."""
    del governed.environment["STOKER_WRAPPER"]
    ccache = governed.folder / "ccache"
    (governed.folder / "masked").mkdir()
    (governed.folder / "masked/gcc").symlink_to(ccache)
    named, masked = keyed(f"{ccache} gcc -c a.c -o a.o; masked/gcc -c a.c -o b.o")
    assert key_of(named)
    assert masked == "mtime"

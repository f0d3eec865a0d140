"""With a cache, a compile starts the cache; the compiler that the cache starts is the step."""

from pathlib import Path

import pytest

from unit.launcher.preloaded import TAKE, Preloaded, build

# Writes down its words, and starts the compiler unless it is told that it has the result.
WRAPPER = (
    TAKE
    + r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
    take();
    FILE *log = fopen(getenv("WRAPPER_LOG"), "a");
    for (int i = 1; i < count; i++)
        fprintf(log, "%s%c", words[i], i + 1 < count ? ' ' : '\n');
    if (getenv("CCACHE_DEPEND"))
        fprintf(log, "depend\n");
    if (getenv("CCACHE_NODIRECT"))
        fprintf(log, "by text\n");
    if (getenv("CCACHE_DISABLE"))
        fprintf(log, "off\n");
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
)


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
        ("-MMD -MF a.d -c a.cu -o a.o", False),  # headers of the system are missing
        ("-MD -MMD -MF a.d -c a.cu -o a.o", False),
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


@pytest.mark.parametrize(
    "option",
    [
        "-fopt-info-vec=list",
        "-aux-info list",
        "-fcallgraph-info",
        "-fsave-optimization-record",
        "-da",
    ],
)
def test_a_file_that_a_hit_would_not_make_prevents_caching(wrapped: Preloaded, option: str) -> None:
    wrapped.output("sh", "-c", f"gcc {option} -c a.c -o a.o; true")
    assert calls(wrapped) == []
    assert wrapped.outputs() == ["a.o"]


def test_flags_of_nvcc_that_the_cache_does_not_know_of_prevent_caching(wrapped: Preloaded) -> None:
    nvcc = nothing(wrapped, "nvcc")
    line = f"{nvcc} -MD -MF a.d -c a.cu -o a.o; true"
    wrapped.output("sh", "-c", f"NVCC_APPEND_FLAGS=-O1 {line}")
    assert calls(wrapped) == []
    wrapped.environment |= {"NVCC_APPEND_FLAGS": "-O1", "STOKER_NVCC_APPEND_FLAGS": "-O1"}
    wrapped.output("sh", "-c", line)
    assert len(calls(wrapped)) == 1


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


@pytest.fixture
def ccached(wrapped: Preloaded) -> Preloaded:
    """With a stand-in for a dynamic ccache."""
    wrapped.environment["STOKER_WRAPPER"] = str(build(wrapped.folder, "ccache", WRAPPER))
    return wrapped


@pytest.mark.parametrize(
    "words",
    [
        "-c a.S -o a.o",  # the assembler reads what .include and .incbin name
        "-c a.s -o a.o",
        "-x assembler-with-cpp -c a.c -o a.o",
        "-fmodules-ts -c a.c -o a.o",
        "-fmodule-file=said.pcm -c a.c -o a.o",
        "-c a.c -o a.o @a.o.modmap",
        "-wrapper /usr/bin/env -c a.c -o a.o",
        "-fprebuilt-module-path=. -c a.c -o a.o",
        "-fsanitize-ignorelist=a.c -c a.c -o a.o",
        "-mllvm -inline-replay=a.c -c a.c -o a.o",
        "-Wa,@a.c -c a.c -o a.o",
        "-Wa,--MD,list -c a.c -o a.o",
        "--debug -c a.c -o a.o",
        "-Xclang -debug-info-kind=limited -c a.c -o a.o",
        "-fprofile-arcs -c a.c -o a.o",
        "-fthin-link-bitcode=a.bc -c a.c -o a.o",
        "-Xassembler --MD -Xassembler list -c a.c -o a.o",
        "-Wa,--M,list -c a.c -o a.o",
        "-dumpbase said -c a.c -o a.o",
        "-no-canonical-prefixes -c a.c -o a.o",
        "-fno-integrated-as -c a.c -o a.o",
        "--config ./said.cfg -c a.c -o a.o",
        "--config=said.cfg -c a.c -o a.o",
    ],
)
def test_compiles_that_read_what_no_cache_sees_are_not_cached(
    ccached: Preloaded, words: str
) -> None:
    compiler = nothing(ccached, "g++")
    ccached.output("sh", "-c", f"{compiler} {words}; true")
    assert calls(ccached) == []
    assert len(ccached.governed()) == 1


@pytest.mark.parametrize(
    "words",
    [
        "-fsanitize-ignorelist=missing -c a.c -o a.o",
        "-fprofile-use=a.c -c a.c -o a.o",  # ccache reads it
        "-fuse-ld=./a.c -DNAME=a.c -c a.c -o a.o",
        "-fprofile-arcs -ftest-coverage -c a.c -o a.o",
        "-Wa,--noexecstack -gsplit-dwarf -c a.c -o a.o",
    ],
)
def test_options_that_a_cache_compares_are_cached(ccached: Preloaded, words: str) -> None:
    compiler = nothing(ccached, "gcc")
    ccached.output("sh", "-c", f"{compiler} {words}; true")
    assert len(calls(ccached)) == 1


@pytest.mark.parametrize("words", ["--options-file=a.c", "-optf=a.c", "-Xptxas --options-file,a.c"])
def test_options_of_nvcc_that_no_cache_reads(ccached: Preloaded, words: str) -> None:
    nvcc = nothing(ccached, "nvcc")
    ccached.output("sh", "-c", f"{nvcc} {words} -MD -c a.cu -o a.o; true")
    assert calls(ccached) == []


@pytest.mark.parametrize("remote", ["CCACHE_REMOTE_STORAGE=redis://cache", "SCCACHE_SERVER_UDS=s"])
@pytest.mark.parametrize(
    "compile_it",
    ["gcc -march=native", "gcc -O2 -mcpu=native", "nvcc -MD -arch native", "nvcc -MD -arch=native"],
)
def test_code_for_this_machine_is_not_shared(
    ccached: Preloaded, compile_it: str, remote: str
) -> None:
    compiler, _, words = compile_it.partition(" ")
    command = f"{nothing(ccached, compiler)} {words} -c a.c -o a.o; true"
    ccached.output("sh", "-c", command)
    assert len(calls(ccached)) > 0
    ccached.output("sh", "-c", f"{remote} {command}")
    assert calls(ccached) == []


@pytest.mark.parametrize(
    ("compiler", "variable", "cached"),
    [
        ("gcc", "CCC_OVERRIDE_OPTIONS", False),
        ("gcc", "DEPENDENCIES_OUTPUT", False),
        ("clang", "CC_PRINT_HEADERS", False),
        ("nvcc", "INCLUDES", False),
        ("nvcc", "SYSTEM_INCLUDES", False),
        ("nvcc", "PTXAS_FLAGS", False),
        ("nvcc", "CUDAFE_FLAGS", False),
        ("gcc", "INCLUDES", True),
    ],
)
def test_variables_that_change_a_compile_are_not_hidden_from_the_cache(
    ccached: Preloaded, compiler: str, variable: str, cached: bool
) -> None:
    """nvcc.profile adds to some variables of the environment."""
    command = f"{variable}=x {nothing(ccached, compiler)} -MD -c a.c -o a.o; true"
    ccached.output("sh", "-c", command)
    assert bool(calls(ccached)) is cached


@pytest.mark.parametrize(("compiler", "cached"), [("gcc", True), ("clang++-19", False)])
def test_a_command_in_the_object_of_clang(ccached: Preloaded, compiler: str, cached: bool) -> None:
    """ccache adds an option to the command, which the object would have."""
    program = nothing(ccached, compiler)
    ccached.output("sh", "-c", f"{program} -grecord-gcc-switches -c a.c -o a.o; true")
    assert bool(calls(ccached)) is cached


@pytest.mark.parametrize("own", [False, True])
def test_a_cache_gets_the_options_that_it_knows(ccached: Preloaded, own: bool) -> None:
    compiler = nothing(ccached, "gcc")
    if own:
        del ccached.environment["STOKER_WRAPPER"]
        ccached.environment["STOKER_COMPILER_KEYS"] = str(ccached.folder / "keys")
    words = "--write-dependencies -c a.c -o a.o"
    ccached.output("sh", "-c", f"{'./ccache' if own else ''} {compiler} {words}; true")
    assert calls(ccached) == [f"{compiler} -MD -c a.c -o a.o"]


@pytest.mark.parametrize(
    ("text", "cached"),
    [
        ('asm(R"(.include "more")");', False),
        ('int a[] = {\n#embed "more"\n};', False),
        ('#  embed "more"', False),
        ('#if __has_embed("more")', False),
        ("int embed(int n) { return embedding + n; } // embed", True),
        ('void f(void) { asm(".incbin \\"blob\\""); }', False),
        ('asm("nop\\n\\t.include \\"more\\"");', False),
        ('asm(R"(\n.include "more"\n)");', False),
        ("int f() { return list.include(1) + list.incbin; } // an include", True),
    ],
)
@pytest.mark.parametrize("before", [0, 4090, 4100, 8185])
def test_sources_whose_assembler_reads_files_are_not_cached(
    ccached: Preloaded, text: str, before: int, cached: bool
) -> None:
    compiler = nothing(ccached, "g++")
    (ccached.folder / "a.cc").write_text("x" * before + "\n" + text)
    ccached.output("sh", "-c", f"{compiler} -c a.cc -o a.o; true")
    assert bool(calls(ccached)) is cached


@pytest.mark.parametrize("engine", ["ccache", "sccache"])
def test_sccache_is_not_used_where_it_would_change_the_date(
    wrapped: Preloaded, engine: str
) -> None:
    """It removes this variable before it starts the compiler."""
    wrapped.environment["STOKER_WRAPPER"] = str(build(wrapped.folder, engine, WRAPPER))
    wrapped.output("sh", "-c", "gcc -c a.c -o a.o; true")
    assert len(calls(wrapped)) == 1
    wrapped.output("sh", "-c", "SOURCE_DATE_EPOCH=1 gcc -c a.c -o a.o; true")
    assert bool(calls(wrapped)) is (engine == "ccache")


def test_a_pipe_is_not_opened(ccached: Preloaded) -> None:
    compiler = build(ccached.folder, "gcc", 'int main(void) { return system("cat a.c > a.o"); }')
    (ccached.folder / "a.c").unlink()
    line = f"mkfifo a.c; (echo one; sleep 1; echo two) > a.c & {compiler} -c a.c -o a.o && wait $!"
    ccached.output("sh", "-c", line)
    assert (ccached.folder / "a.o").read_text() == "one\ntwo\n"


def test_only_kernels_are_cached_in_depend_mode(ccached: Preloaded) -> None:
    """It trusts the list of headers, and does not see what inline assembler includes."""
    nvcc = nothing(ccached, "nvcc")
    ccached.output("sh", "-c", "gcc -MD -c a.c -o a.o; gcc -MMD -c a.c -o a.o; true")
    assert "depend" not in calls(ccached)
    ccached.output("sh", "-c", f"{nvcc} -MD -c a.cu -o a.o; true")
    assert calls(ccached)[1:] == ["depend"]
    for variable in ("CCACHE_NODIRECT", "CCACHE_NODEPEND"):  # the user's own
        ccached.output("sh", "-c", f"{variable}=1 {nvcc} -MD -c a.cu -o a.o; true")
        assert calls(ccached) == []


@pytest.mark.parametrize(
    ("source", "inside"),
    [
        ("a.c", True),
        ("inner/b.c", True),
        ("inner/../a.c", True),
        ("{tree}/inner/b.c", True),
        ("{tree}/linked/b.c", True),
        ("../tree-two/c.c", False),
        ("{tree}-two/c.c", False),
        ("outside/c.c", False),
    ],
)
def test_a_source_outside_of_the_tree_whose_headers_are_named(
    ccached: Preloaded, source: str, inside: bool
) -> None:
    """ccache would not notice a header that is added earlier in the search path there."""
    tree = ccached.folder / "tree"
    other = ccached.folder / "tree-two"
    for file in (tree / "a.c", tree / "inner/b.c", other / "c.c"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("int a;\n")
    (tree / "linked").symlink_to("inner")
    (tree / "outside").symlink_to(other)
    ccached.environment["STOKER_NAMED_TREE"] = str(tree)
    ccached.output("sh", "-c", f"cd tree; gcc -c {source.format(tree=tree)} -o a.o")
    assert ("by text" in calls(ccached)) is not inside
    nvcc = nothing(ccached, "nvcc")
    for file in (tree / "a.c", tree / "inner/b.c", other / "c.c"):
        file.with_suffix(".cu").write_text("int a;\n")
    kernel = source.format(tree=tree).replace(".c", ".cu")
    ccached.output("sh", "-c", f"cd tree; {nvcc} -MD -c {kernel} -o a.o; true")
    assert ("depend" in calls(ccached)) is inside


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("-I.", True),
        ("-I inner -isystem inner/deep", True),
        ("-I../tree-two", False),
        ("-isystem {tree}-two", False),
        ("-iquote/usr/include", False),
        ("-Imade/include", False),
        ("-I .hidden", False),
        ("-Imissing", False),
        ("@options", False),
    ],
)
def test_folders_of_headers_whose_names_are_not_known(
    ccached: Preloaded, words: str, named: bool
) -> None:
    """A new header would not be noticed: ccache compares the text that it preprocesses then."""
    tree = ccached.folder / "tree"
    for folder in ("inner/deep", "made/include", ".hidden", "../tree-two"):
        (tree / folder).mkdir(parents=True)
    (tree / "made/build.ninja").touch()
    (tree / "a.c").write_text("int a;\n")
    (tree / "options").write_text("-I../tree-two\n")
    ccached.environment["STOKER_NAMED_TREE"] = str(tree)
    ccached.output("sh", "-c", f"cd tree; gcc {words.format(tree=tree)} -c a.c -o a.o")
    assert ("by text" not in calls(ccached)) is named
    ccached.output("sh", "-c", "cd tree; CPATH=/usr/include gcc -c a.c -o a.o")
    assert "by text" in calls(ccached)


@pytest.mark.parametrize(
    "way", ["-B bin", "-Bbin/", "--prefix=bin", "COMPILER_PATH=bin", "GCC_EXEC_PREFIX=bin/"]
)
@pytest.mark.parametrize("program", ["as", "cc1plus", "x86_64-linux-gnu/12/as", "ld"])
def test_another_assembler_is_not_hidden_from_the_cache(
    ccached: Preloaded, program: str, way: str
) -> None:
    """conda's Python compiles with -B of a folder that has a linker only."""
    (ccached.folder / "bin" / program).parent.mkdir(parents=True)
    compiler = nothing(ccached, "gcc")
    nothing(ccached, f"bin/{program}")
    variable, option = ("", way) if way.startswith("-") else (way, "")
    ccached.output("sh", "-c", f"{variable} {compiler} {option} -c a.c -o a.o; true")
    assert bool(calls(ccached)) is (program == "ld" and "GCC" not in way)


@pytest.mark.parametrize("name", ["my-as", "my-ld"])
def test_another_assembler_by_the_start_of_its_name(ccached: Preloaded, name: str) -> None:
    (ccached.folder / "bin").mkdir()
    compiler = nothing(ccached, "gcc")
    nothing(ccached, f"bin/{name}")
    ccached.output("sh", "-c", f"{compiler} -Bbin/my- -c a.c -o a.o; true")
    assert bool(calls(ccached)) is (name == "my-ld")


def test_another_assembler_on_the_path_is_not_hidden_from_the_cache(ccached: Preloaded) -> None:
    compiler = nothing(ccached, "gcc")
    (ccached.folder / "bin").mkdir()
    line = f"{compiler} -c a.c -o a.o; true"
    known = nothing(ccached, "bin/as")
    path = ccached.environment["PATH"]
    ccached.environment |= {"PATH": f"{known.parent}:{path}", "STOKER_ASSEMBLER": str(known)}
    ccached.output("sh", "-c", line)
    assert len(calls(ccached)) == 1
    ccached.output("sh", "-c", f"PATH=/usr/bin:/bin {line}")
    assert calls(ccached) == []


def test_a_ccache_of_the_build_itself_is_as_safe(ccached: Preloaded) -> None:
    """PyTorch starts ccache by itself, and /usr/lib/ccache has it under the names of compilers."""
    del ccached.environment["STOKER_WRAPPER"]
    line = "./ccache /usr/bin/gcc -B . -x assembler -c /dev/null -o a.o; true"
    ccached.output("sh", "-c", line)
    assert calls(ccached)[1:] == []  # stoker was asked for no cache
    ccached.environment["STOKER_COMPILER_KEYS"] = str(ccached.folder / "keys")
    nvcc = nothing(ccached, "nvcc")
    for words, said in (
        (f"{nvcc} -MD -c a.cu -o a.o", ["depend"]),
        (f"{nvcc} -MMD -c a.cu -o a.o", ["off"]),
        ("/usr/bin/gcc -MMD -c a.c -o a.o", []),
        ("/usr/bin/gcc -B . -x assembler -c /dev/null -o a.o", ["off"]),
    ):
        ccached.output("sh", "-c", f"./ccache {words}; true")
        assert calls(ccached)[1:] == said


def test_a_compiler_that_breaks_the_cache_is_left_out(wrapped: Preloaded) -> None:
    nvcc = nothing(wrapped, "nvcc")
    wrapped.environment["STOKER_UNCACHED"] = "nvcc"
    wrapped.output("sh", "-c", f"{nvcc} -MD -c a.cu -o a.o; gcc -c a.c -o a.o; true")
    (call,) = calls(wrapped)
    assert call.endswith("gcc -c a.c -o a.o")

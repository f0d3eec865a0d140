"""Reading steps from command lines of build tools."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.govern.command_line import (
    compiler_words,
    custom_step,
    has_free_linker,
    reads_files,
    role_of_source,
    step_of,
)
from stoker.govern.server.build_files import BuildFiles
from stoker.model.govern import Collector, Role, Step


class Folder:
    """Files that are not on any disk."""

    def __init__(self, texts: dict[str, str] | None = None, version: str = "1"):
        self._texts = texts or {}
        self._version = version

    def size(self, path: str) -> int:
        return 1000 if path.startswith("/src/build/") else 0

    def text(self, path: str) -> str:
        return self._texts.get(path, "")

    def identity(self, program: str) -> str:
        return f"{program} {self._version}"


def read(line: str, files: Folder | None = None, *, root: str = "/src") -> Step:
    return step_of(shlex.split(line), f"{root}/build", root, files or Folder())


COMPILE = (
    "/usr/bin/c++ -DNDEBUG -I/src/include -I../third_party -isystem /src/build/gen -O3 -MD"
    " -MT core/a.cpp.o -MF core/a.cpp.o.d -o core/a.cpp.o -c /src/core/a.cpp"
)
CUDA = (
    "/usr/local/cuda/bin/nvcc --generate-dependencies-with-compile -gencode"
    " arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=[sm_90a,compute_90a] --threads 4"
    " -O3 -c /src/csrc/flash_fwd_sm_75.cu -o /src/build/flash.o"
)


def test_a_compile() -> None:
    step = read(COMPILE)
    assert step.role is Role.CXX
    assert step.source == "core/a.cpp"
    assert step.output == "core/a.cpp.o"
    assert step.directory == "/src/build"
    assert step.dependency_file == "core/a.cpp.o.d"
    assert step.compiler == "c++"
    assert step.flags == (
        "-DNDEBUG",
        "-Iinclude",
        "-Ithird_party",
        "-isystem",
        "build/gen",
        "-O3",
        "-c",
    )


def test_a_cuda_compile() -> None:
    step = read(CUDA)
    assert step.role is Role.CUDA
    assert step.archs == ("80", "90a")
    assert step.output == "/src/build/flash.o"


@pytest.mark.parametrize(("told", "at_once"), [(0, 2), (1, 1), (2, 2), (8, 2)])
def test_targets_at_once_are_as_many_as_nvcc_was_told(told: int, at_once: int) -> None:
    step = step_of(shlex.split(CUDA), "/src/build", "/src", threads=told)
    assert (step.threads, step.targets_at_once) == (told, at_once)


def test_threads_are_for_device_code_alone() -> None:
    assert step_of(["nvcc", "a.o", "-o", "a"], "/b", "/b", threads=4).threads == 1


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("gcc -c a.c", Role.C),
        ("g++ -c a.c", Role.CXX),
        ("gcc -c a.cc", Role.CXX),
        ("clang++-18 -c a.cxx", Role.CXX),
        ("x86_64-linux-gnu-g++-13 -c a.cpp", Role.CXX),
        ("gcc -c start.S", Role.C),
        ("gfortran -O2 -c solver.f90", Role.FORTRAN),
        ("aarch64-linux-gnu-gfortran-12 -c solver.F", Role.FORTRAN),
        ("/opt/gcc/bin/g++-real -c a.cc -o a.o", Role.CXX),
        ("gcc -c solver.for", Role.FORTRAN),
        ("gfortran -shared -o libx.so a.o", Role.LINK),
        ("clang++ -x cuda -c a.cu", Role.CUDA),
        ("nvcc -x cu -c a.cpp", Role.CUDA),
        ("nvcc -dlink a.o b.o -o c.o", Role.LINK),
        ("g++ -shared -o libx.so a.o b.o", Role.LINK),
        ("ld.lld -o x a.o", Role.LINK),
        ("ar qc libx.a a.o b.o", Role.ARCHIVE),
        ("gcc-ar qc libx.a a.o", Role.ARCHIVE),
        ("ranlib libx.a", Role.ARCHIVE),
        ("ccache g++ -c a.cpp", Role.CXX),
        ("python generate.py", Role.OTHER),
        ("protoc a.proto", Role.OTHER),
        ("cc1plus -quiet a.cpp -dumpbase a.cpp -o /tmp/x.s", Role.CXX),
        ("cc1plus -quiet a.c -o /tmp/x.s", Role.CXX),
        ("cicc --orig_src_file_name a.cu /tmp/tmpxft_1_0-5_a.cpp1.ii -o /tmp/a.ptx", Role.CUDA),
        ("ptxas -arch=sm_90 /tmp/tmpxft_1_0-6_a.ptx -o /tmp/tmpxft_1_0-7_a.cubin", Role.CUDA),
        ("gfortran-12 -c a.f90 -o a.o", Role.FORTRAN),
        ("flang-new -c a.F90", Role.FORTRAN),
        ("rustc --crate-name a src/main.rs", Role.RUST),
        ("icpc -c a.cpp", Role.CXX),
        ("ifort -o a a.o", Role.LINK),
        ("ld64.lld-18 -o x a.o", Role.LINK),
        ("/bin/sh -c 'gcc -o a.o -c a.c'", Role.C),
        ("sh -c 'cd x && g++ -c \"a b.cpp\" -o a.o && touch a.d'", Role.CXX),
        ("bash -e -c 'ccache nvcc -c a.cu'", Role.CUDA),
        ("sh -c 'python generate.py'", Role.OTHER),
        ("sh -c", Role.OTHER),
        ("ccache", Role.OTHER),
        ("", Role.OTHER),
    ],
)
def test_roles(line: str, role: Role) -> None:
    assert read(line).role is role


def test_a_compile_in_a_shell_is_the_same_step_as_without_it() -> None:
    """As SCons starts it."""
    words = ["sh", "-c", f"{COMPILE} && touch made"]
    assert step_of(words, "/src/build", "/src", Folder()) == read(COMPILE)
    assert reads_files(["sh", "-c", "gcc a.o -o a"], "/src", lambda _: True)


def test_a_compile_depends_on_no_file_but_its_compiler_and_its_source() -> None:
    """What it makes is no input. The compiler and the folder of the source are looked at once."""
    words = COMPILE.split()
    files = BuildFiles()
    assert reads_files(words, "/src/build", files.knows)
    files.identity(words[0])
    assert reads_files(words, "/src/build", files.knows)
    files.size("/src/core/other.cpp")
    assert not reads_files(words, "/src/build", files.knows)
    assert reads_files([*words, "other.o"], "/src/build", files.knows)


def test_the_size_of_a_compile_is_that_of_its_source() -> None:
    assert read("g++ -c generated.cpp -o x.o").input_bytes == 1000


def test_temporary_names_of_nvcc_do_not_matter() -> None:
    line = (
        "ptxas -arch=sm_90 /tmp/tmpxft_{0}_00000000-6_a.ptx -o /tmp/tmpxft_{0}_00000000-7_a.cubin"
    )
    assert key(line.format("0003f5b1")) == key(line.format("000401aa"))


@pytest.mark.parametrize("words", ["-o x.o", "-ox.o", "--output-file x.o", "--output-file=x.o"])
def test_outputs(words: str) -> None:
    step = read(f"gcc -c a.c {words}")
    assert step.output == "x.o"
    assert step.flags == ("-c",)


@pytest.mark.parametrize("path", ["dir/x", "bj/x", "penmp/x", "obj/x", "directory"])
def test_joined_values_may_begin_like_another_option(path: str) -> None:
    step = read(f"gcc -MD -c a.c -MF{path}.d -MT{path}.o -MQ{path}.o -o{path}.o")
    assert (step.dependency_file, step.output) == (f"{path}.d", f"{path}.o")
    assert step.flags == ("-c",)


@pytest.mark.parametrize("word", ["-openmp", "-openmp=llvm", "-objtemp", "-odir", "-odir=x"])
def test_options_that_begin_like_an_output_are_flags(word: str) -> None:
    step = read(f"nvcc {word} -c a.cu")
    assert (step.output, step.flags) == ("", (word, "-c"))


@pytest.mark.parametrize("words", ["-MF x.d", "-MFx.d", "-Wp,-MD,x.d", "-Wp,-MMD,x.d"])
def test_dependency_files(words: str) -> None:
    step = read(f"gcc -MD -c a.c {words} -MTa.o -MQ a.o")
    assert step.dependency_file == "x.d"
    assert step.flags == ("-c",)


def test_the_value_of_an_output_is_no_option() -> None:
    """Whatever was read of the same word elsewhere."""
    step = read("nvcc -arch=sm_80 -c a.cu -MT -arch=sm_90 -o x.o")
    assert (step.archs, step.flags) == (("80",), ("-arch=sm_80", "-c"))
    step = read("nvcc -arch=sm_90 -c a.cu -MT -arch=sm_80 -o x.o")
    assert (step.archs, step.flags) == (("90",), ("-arch=sm_90", "-c"))


def test_a_source_behind_an_option_for_a_folder() -> None:
    step = read("gcc -include a.c -O2 -c b.c -o b.o")
    assert step.flags == ("-include", "-O2", "-c")


def test_options_that_only_begin_like_an_output() -> None:
    assert read("gcc -c a.c -O2").output == ""


@pytest.mark.parametrize("name", ["gcc-12", "x-clang++", "nvcc", "hipcc", "icpx", "gfortran"])
def test_every_compiler_is_known(name: str) -> None:
    assert read(f"{name} -c a.cpp").role is not Role.OTHER


def test_a_link_is_known_by_its_output_and_weighed_by_its_inputs() -> None:
    step = read("g++ -shared -o lib/libx.so a.o b.o /usr/lib/libz.so -lm")
    assert (step.source, step.output) == ("build/lib/libx.so", "lib/libx.so")
    assert step.input_bytes == 2000
    assert step.flags == ("-shared", "-lm")


def test_an_archive_is_known_by_its_name() -> None:
    first, second = read("ar qc libx.a a.o"), read("ar qc liby.a b.o c.o")
    assert first.source == "build/libx.a"
    assert first.key != second.key
    assert second.input_bytes == 2000


def test_a_link_without_a_name() -> None:
    assert read("gcc a.o").output == "a.out"


def test_response_files_are_read() -> None:
    files = Folder({"/src/build/x.rsp": "-O2 'a b.o' c.o", "/src/build/i.rsp": "-I/src/include"})
    link = read("g++ -o x @x.rsp", files)
    assert link.input_bytes == 2000
    assert link.flags == ("-O2",)
    compile_ = read("nvcc --options-file i.rsp -c a.cu", files)
    assert compile_.flags == ("-Iinclude", "-c")


def test_a_response_file_that_is_not_there_or_broken() -> None:
    assert read("g++ -o x @none.rsp").input_bytes == 0
    assert read("g++ -o x @q.rsp", Folder({"/src/build/q.rsp": "a.o 'b"})).input_bytes == 1000


@given(st.text(alphabet="ab \n\t\"'\\\\/", max_size=30))
def test_words_of_a_response_file_are_those_of_a_shell(text: str) -> None:
    try:
        words = shlex.split(text)
    except ValueError:  # an open quotation mark
        words = text.split()
    flags = read("g++ -o x @x.rsp", Folder({"/src/build/x.rsp": text})).flags
    assert flags == read(shlex.join(["g++", "-o", "x", *words])).flags


@pytest.mark.parametrize(
    "text", ["x", "\\x", "/pip-a", "/pip-a-b", "-a", "'", "'\"", "a.c ", '"a b" ']
)
def test_no_response_file_takes_time_out_of_proportion(text: str) -> None:
    """With the square of its length, these would take minutes."""
    files = Folder({"/src/build/x.rsp": text * (300_000 // len(text))})
    assert read("g++ -o x @x.rsp", files).output == "x"


def test_no_row_of_wrappers_takes_time_out_of_proportion() -> None:
    assert step_of([*["ccache"] * 200_000, "g++", "-c", "a.cpp"], "/", "/").compiler == "g++"


def key(line: str, root: str = "/src", version: str = "1") -> str:
    return read(line, Folder(version=version), root=root).key


def test_the_same_command_elsewhere_is_the_same() -> None:
    assert key(COMPILE) == key(COMPILE.replace("/src", "/home/me/tree"), root="/home/me/tree")


def test_where_outputs_go_does_not_matter() -> None:
    assert key("g++ -O2 -c a.cpp -o x.o") == key("g++ -O2 -c a.cpp -o y.o -MMD -MF y.d")


@pytest.mark.parametrize(
    "other",
    [
        "g++ -O3 -c a.cpp",
        "g++ -O2 -c b.cpp",
        "clang++ -O2 -c a.cpp",
        "g++ -O2 -DX -c a.cpp",
        "gcc -O2 -c a.cpp",
    ],
)
def test_what_changes_the_result_changes_the_key(other: str) -> None:
    assert key("g++ -O2 -c a.cpp") != key(other)


def test_another_compiler_version_is_another_command() -> None:
    assert key("g++ -c a.cpp", version="12") != key("g++ -c a.cpp", version="13")


def test_the_order_of_include_folders_matters() -> None:
    assert key("g++ -Ia -Ib -c x.cpp") != key("g++ -Ib -Ia -c x.cpp")


@pytest.mark.parametrize(
    "folder",
    [
        "/tmp/pip-install-{}/flash-attn_0123456789abcdef0123456789abcdef",
        "/tmp/pip-req-build-{}/flash-attn",
        "/home/me/.cache/uv/builds-v0/.tmp{}/flash-attn",
    ],
)
def test_pip_builds_in_a_new_folder_every_time(folder: str) -> None:
    def step(name: str) -> Step:
        tree = folder.format(name)
        line = ["g++", f"-I{tree}/csrc", "-c", f"{tree}/csrc/a.cpp", "-o", f"{tree}/b/a.o"]
        return step_of(line, f"{tree}/b", "/home/me/project")

    assert step("ab12cd").key == step("zz98xy").key
    assert step("ab12cd").source == "flash-attn/csrc/a.cpp"
    assert step("ab12cd").directory == step("zz98xy").directory == "flash-attn/b"


def test_paths_outside_the_tree_stay_whole() -> None:
    assert read("g++ -I/opt/mkl/include -c /elsewhere/a.cpp").source == "/elsewhere/a.cpp"


def test_a_root_of_everything_changes_nothing() -> None:
    assert step_of(["gcc", "-c", "/a/b.c"], "/x", "/").source == "/a/b.c"


def test_paths_with_spaces_and_other_alphabets() -> None:
    step = read("g++ -c '/src/böse dir/ü.cpp' -o 'ü o.o'")
    assert (step.source, step.output) == ("böse dir/ü.cpp", "ü o.o")


WORDS = st.text(max_size=12) | st.sampled_from(
    ["-o", "-MF", "-c", "a.cu", "b.o", "@", "@x", "-t", "-arch", "--options-file", "-I", "=", "-"]
)


@given(st.lists(WORDS, max_size=12), st.text(max_size=5), st.text(max_size=5))
def test_any_words_are_some_step(words: list[str], directory: str, root: str) -> None:
    step = step_of(words, directory, root)
    assert len(step.key) == 24
    assert step == step_of(words, directory, root)


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("a.cu", Role.CUDA),
        ("a.cpp", Role.CXX),
        ("a.c", Role.C),
        ("a.f90", Role.FORTRAN),
        ("a.h", Role.OTHER),
    ],
)
def test_roles_of_sources(path: str, role: Role) -> None:
    assert role_of_source(path) is role


def test_a_custom_command_is_its_text_without_folders_and_secrets() -> None:
    text = "cd /src/build && python gen.py --api-key 0123456789abcdef -o /src/build/x.h"
    step = custom_step(["/bin/sh", "-c", text], "/src/build", "/src")
    assert step.role is Role.OTHER
    assert step.source == "python gen.py --api-key *** -o build/x.h"
    assert custom_step(["python", "x" * 500], "/b", "/b").source == "python " + "x" * 113
    assert custom_step([], "/b", "/b").source == ""


def test_secrets_in_definitions_are_not_kept() -> None:
    words = ["-DAPI_TOKEN=short", "-DURL=https://me:s3cr3t@host/", "-D", "DB_PASS=s3cr3t", "-DN=1"]
    step = step_of(["c++", *words, "-std=c++17", "-c", "a.cpp", "-o", "a.o"], "/w", "/w")
    other = step_of(["c++", *words[1:], "-std=c++17", "-c", "a.cpp", "-o", "a.o"], "/w", "/w")
    assert step.key != other.key
    assert step.flags == (
        *("-DAPI_TOKEN=***", "-DURL=https://***@host/", "-D", "DB_PASS=***", "-DN=1"),
        *("-std=c++17", "-c"),
    )


def test_a_folder_named_like_the_root_within_the_tree_stays() -> None:
    words = ["g++", "-c", "/build/tree/build/aten/x.cpp", "-I/build/tree/build/aten", "-o", "x.o"]
    words += ["-ffile-prefix-map=/build/tree/build=b", "-Wl,-rpath,/build/lib:/build/lib2"]
    step = step_of(words, "/build/tree/build", "/build")
    assert step.source == "tree/build/aten/x.cpp"
    assert "-Itree/build/aten" in step.flags
    assert "-ffile-prefix-map=tree/build=b" in step.flags
    assert "-Wl,-rpath,lib:lib2" in step.flags


@pytest.mark.parametrize(
    ("line", "real", "collector"),
    [
        ("/bin/g++ -O2 -c a.cc", "aarch64-linux-gnu-g++-12", Collector.FREE),
        ("cc -O2 -g0 -c a.c", "gcc-14", Collector.FREE),
        ("cc -O2 -c a.c", "clang-14", Collector.NONE),
        ("g++ -O2 -g -c a.cc", "g++", Collector.RECORDED),
        ("g++ -O2 -ggdb3 -c a.cc", "g++", Collector.RECORDED),
        ("g++ -flto=auto -c a.cc", "g++", Collector.RECORDED),
        ("g++ -frecord-gcc-switches -c a.cc", "g++", Collector.RECORDED),
        ("g++ --param ggc-min-expand=5 -c a.cc", "g++", Collector.NONE),
        ("g++ -x c++-header -c pch.hxx.cxx", "g++", Collector.NONE),
        ("ccache g++ -c a.cc", "g++", Collector.NONE),
        ("sh -c 'g++ -c a.cc'", "g++", Collector.NONE),
        ("g++ a.o -o a", "g++", Collector.NONE),
        ("/usr/local/cuda/bin/nvcc -O3 -c a.cu -tool", "nvcc", Collector.FREE),
        ("nvcc --threads 2 -c a.cu", "nvcc", Collector.NONE),
        ("nvcc --threads=1 -c a.cu", "nvcc", Collector.NONE),
        ("nvcc -t4 -c a.cu", "nvcc", Collector.NONE),
        ("nvcc -t 4 -c a.cu", "nvcc", Collector.NONE),
        ("nvcc --split-compile=0 -c a.cu", "nvcc", Collector.NONE),
        ("nvcc --time times.csv -c a.cu", "nvcc", Collector.NONE),
        ("ccache nvcc -c a.cu", "nvcc", Collector.NONE),
        ("clang++ -c a.cu", "clang-14", Collector.NONE),
    ],
)
def test_whose_options_stoker_may_set(line: str, real: str, collector: Collector) -> None:
    class Named(Folder):
        def identity(self, program: str) -> str:  # noqa: ARG002
            return f"{real} 123"

    assert read(line, Named()).collector is collector


SHARED = "c++ -fPIC -O2 -shared -Wl,-soname,liba.so.1 -o lib/liba.so.1 a.o @b.rsp -lz"


def test_the_linker_of_a_link_can_be_chosen() -> None:
    assert has_free_linker(shlex.split(SHARED))


@pytest.mark.parametrize(
    "line",
    [
        "g++ -fuse-ld=gold -shared -o a.so a.o",
        "g++ -r -o a.o b.o c.o",
        "g++ -o a a.cc",
        "g++ -c -o a.o a.cc",
        "ld -shared -o a.so a.o",
        "nvcc -dlink -o a.o b.o",
        "ar qc liba.a a.o",
        "sh -c 'g++ -shared -o a.so a.o'",
        "",
    ],
)
def test_the_linker_of_other_commands_cannot_be_chosen(line: str) -> None:
    assert not has_free_linker(shlex.split(line))


def test_the_compile_within_a_line_of_ninja() -> None:
    line = ': && ccache /usr/bin/c++ -DA="x y" -o a.so a.o && cmake -E touch a.so && :'
    assert compiler_words(line) == ("/usr/bin/c++", "-DA=x y", "-o", "a.so", "a.o")
    assert compiler_words("cmake -E touch a") == ()

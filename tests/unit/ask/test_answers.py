"""What a build left in the room, as commands, variables, options and its own words."""

import json

import pytest

from stoker.ask.answers import answer
from stoker.ask.room import Left, Question
from stoker.ask.values import Asked, Walls
from stoker.knowledge.steps import known_step
from stoker.model.govern import Role
from stoker.model.variant import Backend

NVCC = "/usr/local/cuda/bin/nvcc"


def asked(
    *notes: dict[str, object], status: int | None = 0, output: str = "", **files: str
) -> Asked:
    question = Question(tree="/tree", python="python3", words=("setup.py",), environment={})
    left = Left(
        status=status,
        ended_for="" if status is not None else "time",
        seconds=1.0,
        notes="".join(json.dumps(note) + "\n" for note in notes),
        files={
            f"/tmp/build/{name.replace('_json', '.json')}": text for name, text in files.items()
        },
        output=output,
    )
    return answer(question, left, "cuda-sm90", Walls.CLOSED)


def compiled(*words: str, by: str = "") -> dict[str, object]:
    return {"note": "compile", "words": words, "folder": "/tree", "by": by}


def test_targets_of_each_kernel() -> None:
    flags = ("-gencode", "arch=compute_90a,code=sm_90a", "-gencode=arch=compute_80,code=compute_80")
    found = asked(
        compiled(NVCC, *flags[:2], "-c", "a.cu", "-o", "a.o"),
        compiled(NVCC, flags[2], "-c", "b.cu", "-o", "b.o"),
        compiled("c++", "-c", "c.cpp", "-o", "c.o"),
        compiled("c++", "-shared", "a.o", "b.o", "c.o", "-o", "lib.so"),
    )
    assert (found.backend, found.device_compiles, found.host_compiles) == (Backend.CUDA, 2, 1)
    assert (found.cubins, found.ptx) == (("9.0a",), ("8.0",))
    assert {k.source: k.targets for k in found.kernels} == {
        "a.cu": ("sm_90a",),
        "b.cu": ("PTX of 8.0",),
    }


def test_a_launcher_that_hides_nvcc() -> None:
    """Kokkos compiles C++ files with nvcc, behind a script of its own."""
    found = asked(compiled("c++", "-arch=sm_90", "-c", "core.cpp", "-o", "core.o"))
    assert (found.backend, found.cubins, found.ptx) == (Backend.CUDA, ("9.0",), ("9.0",))


def test_the_commands_of_ninja_are_counted_once() -> None:
    command = f"{NVCC} -gencode arch=compute_90,code=sm_90 -c /tree/a.cu -o a.o"
    entry = {"directory": "/tmp/build", "command": command, "file": "/tree/a.cu"}
    text = json.dumps([entry])
    found = asked(compile_commands_json=text, compdb_json=text)
    assert found.device_compiles == 1


def test_a_source_that_is_compiled_for_two_extensions_counts_twice() -> None:
    """setuptools writes both objects to the same path, one after the other."""
    words = ("gcc", "-c", "main.cpp", "-o", "build/temp/main.o")
    once, again = compiled(*words, "-DNAME=_cuda"), compiled(*words, "-DNAME=_cpu")
    assert asked(once, again).host_compiles == 2
    assert asked(once, once).host_compiles == 1  # the same command was noted twice


def test_kernels_of_well_known_projects_are_counted_with_their_time() -> None:
    flags = ("-gencode", "arch=compute_90,code=sm_90", "-c")
    found = asked(
        compiled(NVCC, *flags, "csrc/src/flash_bwd_hdim128_bf16_sm80.cu", "-o", "a.o"),
        compiled(NVCC, *flags, "mine.cu", "-o", "b.o"),
    )
    assert (found.device_compiles, found.known_kernels) == (2, 1)
    known = known_step(Role.CUDA, "flash_bwd_hdim128_bf16_sm80.cu")
    assert known is not None
    assert found.known_kernels_s == known.seconds


def test_compilers_that_setup_py_starts_itself_run_one_at_a_time() -> None:
    words = ("gcc", "-c", "main.cpp", "-o", "main.o")
    assert asked(compiled(*words, by="python3.11")).one_at_a_time
    assert not asked(compiled(*words, by="ninja")).one_at_a_time
    assert not asked(compiled(*words)).one_at_a_time
    both = asked(compiled(*words, by="python3"), compiled("gcc", "-c", "b.cpp", by="ninja"))
    assert not both.one_at_a_time


def test_who_reads_which_variable() -> None:
    found = asked(
        {
            "note": "variable",
            "name": "ARCHS",
            "where": "setup.py:3",
            "value": "90",
            "default": "75",
        },
        {"note": "variable", "name": "ARCHS", "where": "setup.py:9", "value": "90"},
        {"note": "variable", "name": "NO_COLOR", "where": "torch/utils/cpp_extension.py:1"},
        {"note": "variable", "name": "API_TOKEN", "where": "setup.py:4", "value": "abc"},
    )
    by_name = {v.name: (v.where, v.value, v.default) for v in found.variables}
    assert by_name == {
        "ARCHS": ("setup.py:3", "90", "75"),
        "API_TOKEN": ("setup.py:4", "***", None),
    }


def test_the_refusal_is_in_the_words_of_the_project() -> None:
    trace = "Traceback ...\n  File x\nAssertionError: sm100 needs NVCC 12.9\n"
    assert asked(status=1, output=trace).refusal == "AssertionError: sm100 needs NVCC 12.9"
    cmake = (
        "-- a\nCMake Error at CMakeLists.txt:3 (message):\n  no FFTW\n\n\n-- Configuring incomplete"
    )
    assert asked(status=1, output=cmake).refusal.endswith("no FFTW")
    later = asked(compiled("cc", "-c", "a.c", "-o", "a.o"), status=1, output=trace)
    assert (later.refusal, later.stopped) == ("", "AssertionError: sm100 needs NVCC 12.9")


def test_options_that_were_not_used_and_those_that_can_be_chosen() -> None:
    cache = (
        "// which GPU\nMY_GPU:STRING=OFF\n//Values\nMY_GPU-STRINGS:INTERNAL=OFF;CUDA\n"
        "CMAKE_AR:FILEPATH=/usr/bin/ar\n"
    )
    said = "Manually-specified variables were not used by the project:\n\n    FOO\n    BAR\n\n"
    question = Question(tree="/tree", python="p", words=("cmake",), environment={})
    left = Left(
        status=0,
        ended_for="",
        seconds=1.0,
        notes="not JSON\n",
        files={"/tmp/build/CMakeCache.txt": cache},
        output=said,
    )
    found = answer(question, left, "x", Walls.CLOSED)
    assert found.unused == ("FOO", "BAR")
    (option,) = found.options
    assert (option.name, option.value, option.choices) == ("MY_GPU", "OFF", ("OFF", "CUDA"))


@pytest.mark.parametrize(
    ("output", "cache"),
    [("CMake Error" + " \t" * 100_000, ""), ("x" * 200_000, ""), ("", "//x\n" * 500_000)],
)
def test_what_a_program_leaves_is_read_in_linear_time(output: str, cache: str) -> None:
    """A pattern or a text that grows with each line would take hours."""
    question = Question(tree="/tree", python="p", words=("cmake",), environment={})
    files = {"/tmp/build/CMakeCache.txt": f"{cache}LIB_GPU:BOOL=OFF\n"}
    left = Left(status=1, ended_for="", seconds=1.0, notes="", files=files, output=output)
    found = answer(question, left, "x", Walls.CLOSED)
    assert len(found.refusal) < 2000
    assert len(found.options[0].help) <= 200


def test_a_build_that_wants_a_network_has_not_refused() -> None:
    clone = (
        "CMake Error at gitclone.cmake:39 (message):\n  Failed to clone repository: 'https://x'\n"
    )
    failed = "CMake Error at FetchContent.cmake:1 (message):\n  Build step for qdldl failed: 1\n"
    for said in (
        clone,
        failed,
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure>\n",
    ):
        found = asked(status=1, output=said)
        assert (found.refusal, found.answered) == ("", False)
        assert found.offline == said.strip()

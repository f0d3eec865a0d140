"""Every program that starts a compiler starts the launcher instead, without noticing."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Need, find_tool, missing
from unit.launcher.conftest import ROOT
from unit.launcher.preloaded import Preloaded, build, write_program

COMPILE = "gcc -c a.c -o a.o"

PYTHON = {
    "vfork": "subprocess.run(words, check=True)",
    "fork": "subprocess._USE_VFORK = False; subprocess.run(words, check=True)",
    "posix_spawn": "subprocess.run([path, *words[1:]], check=True, close_fds=False)",
    "os.posix_spawn": "os.waitpid(os.posix_spawn(path, words, os.environ), 0)",
    "os.spawn": "os.spawnvp(os.P_WAIT, words[0], words)",
    "shell": "os.system(' '.join(words))",
    "environment": "subprocess.run(words, check=True, env=dict(os.environ))",
}


@pytest.mark.parametrize("way", PYTHON)
def test_python(preloaded: Preloaded, way: str) -> None:
    start = "import os, shutil, subprocess\n"
    start += f"words = {COMPILE.split()}; path = shutil.which('gcc')\n"
    preloaded.output(sys.executable, "-c", start + PYTHON[way])
    assert preloaded.outputs() == ["a.o"]


@pytest.mark.parametrize(
    "command",
    [
        ("bash", "-c", COMPILE),
        ("bash", "-c", f"{COMPILE}; true"),
        ("bash", "-c", f"exec {COMPILE}"),
        ("dash", "-c", f"{COMPILE} && true"),
        ("dash", "-c", f"({COMPILE}) | cat"),
        ("perl", "-e", f"system('{COMPILE}')"),
        ("perl", "-e", f"system('{COMPILE};')"),
        ("perl", "-e", f"exec('{COMPILE}')"),
        ("perl", "-e", f"print `{COMPILE}`"),
        ("env", "-u", "LD_PRELOAD", *COMPILE.split()),
        ("env", "-i", "PATH=/usr/bin:/bin", *COMPILE.split()),
        ("nice", *COMPILE.split()),
        ("xargs", "-a", "/dev/null", *COMPILE.split()),
    ],
    ids=" ".join,
)
def test_shells_and_the_like(preloaded: Preloaded, need: Need, command: tuple[str, ...]) -> None:
    need(command[0])
    preloaded.output(*command)
    assert preloaded.outputs() == ["a.o"]


def test_an_environment_without_the_library_stays_without(preloaded: Preloaded) -> None:
    """What such a command starts in its turn is not governed."""
    preloaded.output("env", "-u", "LD_PRELOAD", "sh", "-c", f"{COMPILE}; true")
    assert preloaded.governed() == []


CLEAN = ("env", "-i", f"PATH={os.environ['PATH']}")


def test_a_shell_in_an_environment_made_from_nothing(preloaded: Preloaded, need: Need) -> None:
    """The compilers that it starts are governed, as SCons starts them; it runs as it is."""
    preloaded.environment["STOKER_TEST_KEEP"] = "1"
    shell = (*CLEAN, "sh", "-c")
    preloaded.output(*shell, f"{COMPILE}; true")
    assert preloaded.governed() == [["--as", "gcc", need("gcc"), *COMPILE.split()[1:]]]
    shown = preloaded.output(*shell, f"X=1; if {COMPILE}; then echo $$ $TMPDIR; {COMPILE}; fi")
    assert len(shown.split()) == 1
    assert preloaded.outputs() == ["a.o", "a.o"]
    preloaded.output(*shell, "echo gcc; gcc -c a.c -o conftest.o")
    assert preloaded.governed() == []


def test_a_shell_that_starts_no_compiler_keeps_an_environment_made_from_nothing(
    preloaded: Preloaded,
) -> None:
    for command in (("sh", "-c", "env"), ("env",)):
        shown = preloaded.output(*CLEAN, *command)
        assert "STOKER" not in shown
        assert "LD_PRELOAD" not in shown


def test_a_build_tool_in_an_environment_made_from_nothing(
    preloaded: Preloaded, tmp_path: Path, need: Need
) -> None:
    need("make")
    (tmp_path / "Makefile").write_text(f"a.o: a.c\n\t{COMPILE}\n")
    preloaded.output(*CLEAN, "make", "-s")
    assert preloaded.outputs() == ["a.o"]


SHOW = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words)
{
    const char *preload = getenv("LD_PRELOAD");
    printf("%s|%s|", words[0], preload ? preload : "");
    for (int at = 1; at < count; at++)
        printf("%s%s", at > 1 ? " " : "", words[at]);
    puts("");
}
"""


def show_program(path: Path) -> Path:
    """A program that prints its words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return build(path.parent, path.name, SHOW)


def test_a_governed_command_does_not_have_the_library(
    preloaded: Preloaded, tmp_path: Path, need: Need
) -> None:
    """Neither has a probe. Libraries of the user's own stay."""
    other = build(tmp_path, "other.so", "int other;", "-shared", "-fPIC")
    # For a launcher that is built with the sanitizer, which must come before `other`.
    preloaded.environment["ASAN_OPTIONS"] = "verify_asan_link_order=0"
    gcc = str(show_program(tmp_path / "bin/gcc"))
    need("env")
    for mine in (f"{preloaded.library}", f"{preloaded.library}:", f" {preloaded.library} "):
        preloaded.environment["LD_PRELOAD"] = mine
        assert preloaded.output("env", gcc, "-c", "a.c") == f"{gcc}||-c a.c\n"
        assert preloaded.output("env", gcc, "--version") == f"{gcc}||--version\n"
    for mine in (f"{preloaded.library}:{other}", f"{other} {preloaded.library}"):
        preloaded.environment["LD_PRELOAD"] = mine
        assert preloaded.output("env", gcc, "-c", "a.c") == f"{gcc}|{other}|-c a.c\n"
        assert preloaded.output("env", gcc, "--version") == f"{gcc}|{other}|--version\n"
    assert len(preloaded.governed()) == 5


def test_argv0_is_kept(preloaded: Preloaded, need: Need) -> None:
    """A program that is called by another name than its file's."""
    gcc = need("gcc")
    for command in ("-c a.c", "--version"):
        text = f"exec -a /elsewhere/my-driver {gcc} -v {command}"
        plain = subprocess.run(
            ["bash", "-c", text], cwd=preloaded.folder, capture_output=True, text=True, check=True
        )
        governed = preloaded.run("bash", "-c", text)
        assert "COLLECT_GCC=/elsewhere/my-driver" in plain.stderr
        assert "COLLECT_GCC=/elsewhere/my-driver" in governed.stderr
    assert len(preloaded.governed()) == 1


def test_relative_paths(preloaded: Preloaded, tmp_path: Path) -> None:
    show_program(tmp_path / "bin/x86_64-linux-gnu-g++-13")
    program = "bin/x86_64-linux-gnu-g++-13"
    for start in ("exec", "exec env"):
        assert preloaded.output("sh", "-c", f"{start} {program} a.c") == f"{program}||a.c\n"
    assert preloaded.governed() == [[program, "a.c"]] * 2
    code = (
        f"import os; os.chdir('bin'); os.execve('{Path(program).name}', ['x', 'a.c'], os.environ)"
    )
    assert preloaded.output(sys.executable, "-c", code) == "x||a.c\n"
    assert preloaded.governed() == [["--as", "x", f"./{Path(program).name}", "a.c"]]


def test_names_that_the_user_adds(preloaded: Preloaded, tmp_path: Path) -> None:
    write_program(tmp_path / "swiftc", "#!/bin/sh\n")
    preloaded.output("env", tmp_path / "swiftc", "a.swift")
    assert preloaded.governed() == []
    preloaded.environment["STOKER_COMPILERS"] = "zig:swiftc"
    preloaded.output("env", tmp_path / "swiftc", "a.swift")
    assert preloaded.governed() == [[str(tmp_path / "swiftc"), "a.swift"]]


def test_links_of_a_system(preloaded: Preloaded, need: Need) -> None:
    """cc is a link to a link."""
    preloaded.output("env", "cc", "-c", "a.c")
    assert [words[2] for words in preloaded.governed()] == [need("cc")]


@pytest.mark.parametrize("clean", [(), CLEAN], ids=["usual", "new"])
def test_a_script_under_a_compilers_name_runs_as_it_is(
    preloaded: Preloaded, tmp_path: Path, need: Need, clean: tuple[str, ...]
) -> None:
    """/usr/local/bin/nvcc may be one. What it starts is governed, and it may start anything."""
    text = f'#!/bin/sh\necho "$TMPDIR|$STOKER_STEP"\n{need("gcc")} -O1 "$@"\necho after\n'
    script = write_program(tmp_path / "bin/nvcc", text)
    link = tmp_path / "nvcc"
    link.symlink_to("bin/nvcc")
    for start in (script, link):
        shown = preloaded.output("env", *clean, start, "-c", "a.c", "-o", "a.o")
        assert shown == "|\nafter\n"
        assert preloaded.governed() == [[need("gcc"), "-O1", "-c", "a.c", "-o", "a.o"]]


def test_a_script_below_ccache_does_not_start_another_cache(
    preloaded: Preloaded, tmp_path: Path, need: Need
) -> None:
    script = write_program(tmp_path / "bin/gcc", f'#!/bin/sh\nexec {need("gcc")} "$@"\n')
    log = tmp_path / "calls"
    other = build(tmp_path, "cache", f'int main() {{ system("echo x >> {log}"); return 1; }}')
    preloaded.environment["STOKER_WRAPPER"] = str(other)
    preloaded.output(need("ccache"), script, "-c", "a.c", "-o", "a.o")
    assert not log.exists()
    assert [words[0] for words in preloaded.governed()] == [need("gcc")]


def test_ccache(preloaded: Preloaded, tmp_path: Path, need: Need) -> None:
    """Neither it nor its preprocessor waits, only the compiler on a miss; under any name."""
    (tmp_path / "masquerade").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "links/cache").symlink_to(need("ccache"))
    (tmp_path / "masquerade/gcc").symlink_to("../links/cache")
    for start in (f"{tmp_path}/masquerade/gcc -O1", "ccache gcc -O2"):
        for expected in ([need("gcc")], []):
            preloaded.output("sh", "-c", f"{start} -c a.c -o a.o; true")
            steps = preloaded.governed()[1:]
            assert [words[0] for words in steps] == expected


def test_a_library_that_is_gone_is_not_preloaded(preloaded: Preloaded, tmp_path: Path) -> None:
    """As below another root folder, or where stoker was removed during a build."""
    copy = tmp_path / "copy" / preloaded.library.name
    copy.parent.mkdir()
    shutil.copy(preloaded.library, copy)
    preloaded.environment["LD_PRELOAD"] = str(copy)
    assert (
        preloaded.output("sh", "-c", f"rm {copy}; cat /dev/null; sh -c 'echo still'") == "still\n"
    )


def test_what_a_program_loads_is_listed_without_the_library(
    preloaded: Preloaded, need: Need
) -> None:
    """CMake can check every library so, and some builds pack what is listed."""
    listed = preloaded.output(need("ldd"), need("ninja"))
    assert "libc" in listed
    assert preloaded.library.name not in listed


STARTS = r"""
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    char *memory = malloc(8);
    if (vfork() == 0) {
        execlp("gcc", "gcc", "-c", "a.c", "-o", "a.o", (char *)0);
        _exit(9);
    }
    int status;
    wait(&status);
    free(memory);
    return status != 0;
}
"""


@pytest.mark.parametrize(
    "options",
    [
        ("-fsanitize=address",),
        ("-fsanitize=address", "-static-libasan"),
        ("-fsanitize=thread",),
        ("-fsanitize=undefined",),
        ("-fsanitize=leak",),
    ],
    ids=" ".join,
)
def test_programs_with_sanitizers(preloaded: Preloaded, options: tuple[str, ...]) -> None:
    """The address sanitizer must be the first library. The dynamic one recognises itself by a part
    of the path in LD_PRELOAD, and the static one searches the paths of mapped files for a dynamic
    one. A link that contains the names, to a folder that does not, satisfies both.
    """
    program = build(preloaded.folder, "sanitized", STARTS, *options)
    preloaded.output(program)
    assert preloaded.outputs() == ["a.o"]


def test_a_program_of_another_c_library(preloaded: Preloaded, need: Need) -> None:
    musl = need("musl-gcc")
    preloaded.output(build(preloaded.folder, "other", STARTS, compiler=musl))
    assert preloaded.outputs() == ["a.o"]


def test_a_static_program(preloaded: Preloaded) -> None:
    """It starts the driver past us. That is not governed, but what the driver starts is."""
    program = build(preloaded.folder, "static", STARTS, "-static")
    preloaded.output(program)
    assert [Path(words[0]).name for words in preloaded.governed()] == ["cc1"]
    shell = STARTS.replace('"gcc", "gcc"', '"env", "env", "gcc"')
    preloaded.output(build(preloaded.folder, "tool", shell, "-static"))
    assert [words[:2] for words in preloaded.governed()] == [["--as", "gcc"]]


def test_a_setuid_program_runs_without_the_library(preloaded: Preloaded) -> None:
    if os.getuid() != 0:
        missing("root, to make a program that changes the user")
    for folder in (preloaded.folder, *preloaded.folder.parents):
        if folder.stat().st_uid == 0:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    program = build(preloaded.folder, "setuid", STARTS)
    program.chmod(0o4755)
    preloaded.folder.chmod(0o777)
    preloaded.output("setpriv", "--reuid=65534", "--clear-groups", program)
    assert preloaded.governed() == []


JAVA = """
public class Start {
    public static void main(String[] words) throws Exception {
        System.exit(new ProcessBuilder(words).inheritIO().start().waitFor());
    }
}
"""


@pytest.fixture(scope="module")
def start_class(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a compiled Java program that starts a command."""
    folder = tmp_path_factory.mktemp("java")
    (folder / "Start.java").write_text(JAVA)
    subprocess.run([find_tool("javac"), "Start.java"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("mechanism", ["POSIX_SPAWN", "VFORK", "FORK"])
def test_java(preloaded: Preloaded, start_class: Path, mechanism: str) -> None:
    option = f"-Djdk.lang.Process.launchMechanism={mechanism}"
    preloaded.output(find_tool("java"), option, "-cp", start_class, "Start", *COMPILE.split())
    assert preloaded.outputs() == ["a.o"]


def test_cargo(preloaded: Preloaded) -> None:
    """rustc is often a link to rustup, which starts the real one."""
    cargo = find_tool("cargo")
    crate = preloaded.folder / "crate"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "crate"\nversion = "1.0.0"\n')
    (crate / "src/main.rs").write_text("fn main() {}\n")
    done = preloaded.run(cargo, "build", "--offline", cwd=crate)
    assert done.returncode == 0, done
    assert [Path(words[0]).name for words in preloaded.governed()] == ["rustc"]


def test_it_asks_for_no_version_of_a_c_library(preloaded: Preloaded, need: Need) -> None:
    """So that one that was built here loads wherever the launcher runs, as in containers."""
    shown = subprocess.run(
        [need("readelf"), "--version-info", "--dynamic", preloaded.library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "No version information found" in shown
    assert "NEEDED" not in shown


@pytest.mark.slow
def test_clang_builds_it_too(preloaded: Preloaded, need: Need, tmp_path: Path) -> None:
    """It calls the same functions then: a compiler may turn loops into calls of the C library."""
    folder, cmake = tmp_path / "clang", need("cmake")
    compiler = f"-DCMAKE_C_COMPILER={need('clang')}"
    subprocess.run([cmake, "-S", ROOT, "-B", folder, compiler], capture_output=True, check=True)
    subprocess.run(
        [cmake, "--build", folder, "--target", "stoker-preload"], capture_output=True, check=True
    )
    ours, theirs = (
        subprocess.check_output([need("nm"), "--dynamic", "--format=just-symbols", library])
        for library in (preloaded.library, folder / preloaded.library.name)
    )
    assert ours == theirs


SAYS_ITS_WORDS = """
#include <stdio.h>
int main(int count, char **words)
{
    for (int i = 1; i < count; i++)
        printf("%s ", words[i]);
    return 0;
}
"""


def test_a_build_tool_gets_the_window_of_jobs(preloaded: Preloaded, tmp_path: Path) -> None:
    ninja = build(tmp_path, "ninja", SAYS_ITS_WORDS)
    assert preloaded.output("sh", "-c", f"exec {ninja} -j3 all") == "-j3 all "
    preloaded.environment["STOKER_JOBS"] = "48"
    assert preloaded.output("sh", "-c", f"exec {ninja} -j3 all") == "-j48 all "
    for one in ("-j1", "-j 1", "--jobs=1", "--jobs 1", "-j4 -j1"):
        assert preloaded.output("sh", "-c", f"exec {ninja} {one} all") == f"{one} all "
    for other in ("-j10", "-j1 -j4"):
        assert preloaded.output("sh", "-c", f"exec {ninja} {other} all") == "-j48 all "
    preloaded.environment["MAKEFLAGS"] = " -j3 --jobserver-auth=3,4"
    assert preloaded.output("sh", "-c", f"exec {ninja} -j3 all") == "-j3 all "


def test_a_static_build_tool_keeps_its_jobs_and_says_so(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    ninja = build(tmp_path, "ninja", SAYS_ITS_WORDS, "-static")
    preloaded.environment["STOKER_JOBS"] = "48"
    done = preloaded.run("sh", "-c", f"exec {ninja} -j3 all")
    assert done.stdout == "-j3 all "
    assert f"{ninja} is linked statically" in done.stderr
    assert "--via launcher" in done.stderr
    preloaded.environment["STOKER_VIA_LAUNCHER"] = "1"
    assert preloaded.output("sh", "-c", f"exec {ninja} -j3 all") == "-j48 all "

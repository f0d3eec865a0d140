"""Each function of the C library that starts a program starts the launcher for a compiler."""

import sys
from pathlib import Path

import pytest

from conftest import Need
from unit.launcher.preloaded import Preloaded, build, write_program

COMPILE = "gcc -c a.c -o a.o"


# Starts gcc in the way that its first argument names; says how that ended, by status or error.
WAYS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *way, *file;
static char *words[] = {"gcc", "-c", "a.c", "-o", "a.o", NULL};

static int is(const char *name) { return strcmp(way, name) == 0; }

static void become(void)
{
    if (is("execve")) execve(file, words, environ);
    if (is("execv")) execv(file, words);
    if (is("execvp")) execvp(file, words);
    if (is("execvpe")) execvpe(file, words, environ);
    if (is("execl")) execl(file, "gcc", "-c", "a.c", "-o", "a.o", (char *)0);
    if (is("execlp")) execlp(file, "gcc", "-c", "a.c", "-o", "a.o", (char *)0);
    if (is("execle")) execle(file, "gcc", "-c", "a.c", "-o", "a.o", (char *)0, environ);
}

static void *run(void *nothing)
{
    pid_t pid = 0;
    int status = 0, error = 0;
    if (is("posix_spawn")) error = posix_spawn(&pid, file, NULL, NULL, words, environ);
    else if (is("posix_spawnp")) error = posix_spawnp(&pid, file, NULL, NULL, words, environ);
    else {
        static volatile int failed;
        pid = vfork();
        if (pid == 0) {
            become();
            failed = errno;
            _exit(0);
        }
        error = failed;
    }
    if (pid > 0) waitpid(pid, &status, 0);
    printf("%s %d\n", error ? strerror(error) : "ended", status);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    way = arguments[1];
    file = arguments[2];
    if (count > 3) return pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL);
    run(NULL);
    return 0;
}
"""


BY_PATH = ("execve", "execv", "execl", "execle", "posix_spawn")


BY_NAME = ("execvp", "execvpe", "execlp", "posix_spawnp")


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("ways"), "ways", WAYS, "-pthread")


@pytest.mark.parametrize("way", [*BY_PATH, *BY_NAME])
@pytest.mark.parametrize("thread", [(), ("thread",)])
def test_each_function(
    preloaded: Preloaded, ways: Path, need: Need, way: str, thread: tuple[str, ...]
) -> None:
    gcc = need("gcc")
    file = gcc if way in BY_PATH else "gcc"
    assert preloaded.output(ways, way, file, *thread) == "ended 0\n"
    assert preloaded.governed() == [["--as", "gcc", gcc, *COMPILE.split()[1:]]]
    assert (preloaded.folder / "a.o").exists()


@pytest.mark.parametrize("way", [*BY_PATH, *BY_NAME])
def test_errors_are_those_of_the_real_function(
    preloaded: Preloaded, ways: Path, tmp_path: Path, way: str
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/gcc").touch(mode=0o644)
    (tmp_path / "folder/gcc").mkdir(parents=True)
    files = [f"{tmp_path}/{name}/gcc" for name in ("absent", "a.c", "closed", "folder")]
    files += ["", "gcc"]
    preloaded.environment["PATH"] = f"{tmp_path}/absent:{tmp_path}/closed"
    said = [preloaded.output(ways, way, file) for file in files]
    assert preloaded.governed() == []
    assert said[0].startswith("No such file or directory")
    del preloaded.environment["LD_PRELOAD"]
    assert said == [preloaded.output(ways, way, file) for file in files]


@pytest.mark.parametrize("way", BY_NAME)
def test_the_path_is_searched_as_the_real_function_does(
    preloaded: Preloaded, ways: Path, tmp_path: Path, need: Need, way: str
) -> None:
    """Missing folders and files that cannot be executed are skipped."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/gcc").touch(mode=0o644)
    (tmp_path / "folder/gcc").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gcc").symlink_to(need("gcc"))
    before = f"{tmp_path}/absent:{tmp_path}/closed:{tmp_path}/folder"
    preloaded.environment["PATH"] = f"{before}:{tmp_path}/bin:/usr/bin:/bin"
    assert preloaded.output(ways, way, "gcc") == "ended 0\n"
    assert [words[2] for words in preloaded.governed()] == [f"{tmp_path}/bin/gcc"]
    preloaded.environment["PATH"] = f"{before}::/usr/bin:/bin"
    assert preloaded.run(ways, way, "gcc", cwd=tmp_path / "bin").returncode == 0
    assert [words[2] for words in preloaded.governed()] == ["./gcc"]


def test_a_launcher_that_vanished(preloaded: Preloaded, ways: Path, need: Need) -> None:
    preloaded.environment["STOKER_LAUNCHER"] = "/nowhere/stoker-launcher"
    for way in ("execvp", "posix_spawnp"):
        assert preloaded.output(ways, way, need("gcc")) == "ended 0\n"
        (preloaded.folder / "a.o").unlink()


def test_without_a_launcher_nothing_changes(preloaded: Preloaded) -> None:
    del preloaded.environment["STOKER_LAUNCHER"]
    preloaded.output("sh", "-c", f"{COMPILE}; true")
    assert preloaded.governed() == []


def test_huge_command_lines(preloaded: Preloaded, tmp_path: Path) -> None:
    """As long as the kernel takes them; beyond that the error is its own."""
    build(tmp_path, "gcc", '#include <stdio.h>\nint main(int n) { printf("%d\\n", n - 1); }')
    for count in (10, 9000, 60000):
        code = f"import os; os.execv('{tmp_path}/gcc', ['gcc', *['a.c'] * {count}])"
        assert preloaded.output(sys.executable, "-c", code) == f"{count}\n"
        assert len(preloaded.governed()[0]) == count + 3
    code = f"import os; os.execv('{tmp_path}/gcc', ['gcc', 'x' * 4_000_000])"
    assert "Argument list too long" in preloaded.run(sys.executable, "-c", code).stderr
    assert preloaded.governed() == []


SMALL_STACK = r"""
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern char **environ;
static char *words[8001], *way;
static int status;
static ucontext_t here, there;

static void call(void)
{
    pid_t pid = 0;
    if (strcmp(way, "execvp") == 0)
        execvp(words[0], words);
    else if (strcmp(way, "posix_spawnp") == 0)
        posix_spawnp(&pid, words[0], NULL, NULL, words, environ);
    else if ((pid = vfork()) == 0)
        execve(words[0], words, environ), _exit(99);
    waitpid(pid, &status, 0);
}

int main(int count, char **arguments)
{
    size_t size = atoi(arguments[2]) << 10;
    char *memory = mmap(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory + size, size, PROT_READ | PROT_WRITE);
    words[0] = arguments[3], way = arguments[1];
    for (int at = 1; at < atoi(arguments[4]); at++) words[at] = "a.c";
    getcontext(&there);
    there.uc_stack.ss_sp = memory + size;
    there.uc_stack.ss_size = size;
    there.uc_link = &here;
    makecontext(&there, call, 0);
    swapcontext(&here, &there);
    return status == 0 ? 0 : 98;
}
"""


@pytest.mark.parametrize("way", ["execvp", "posix_spawnp", "vfork"])
@pytest.mark.parametrize("wrapper", ["", "/bin/true"])
def test_a_small_stack(preloaded: Preloaded, tmp_path: Path, way: str, wrapper: str) -> None:
    """Functions that start programs may be called on any stack."""
    preloaded.environment["STOKER_WRAPPER"] = wrapper
    gcc = build(tmp_path, "gcc", "int main(void) { return 0; }")
    program = build(tmp_path, "small", SMALL_STACK)
    for size in (8, 16, 32):
        for count in (10, 1000, 8000):
            preloaded.output(program, way, str(size), gcc, str(count))
            assert len(preloaded.governed()[0]) == count


MANY_CHILDREN = r"""
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **arguments)
{
    static char *words[1000];
    struct rusage before, after;
    words[0] = arguments[1];
    for (int at = 1; at < 900; at++) words[at] = "a.c";
    for (int round = 0; round < 201; round++) {
        pid_t pid = vfork();
        if (pid == 0)
            execve(words[0], words, environ), _exit(99);
        waitpid(pid, NULL, 0);
        if (round == 0)
            getrusage(RUSAGE_SELF, &before);
    }
    getrusage(RUSAGE_SELF, &after);
    printf("%ld\n", after.ru_minflt - before.ru_minflt);
    execve("/nowhere", words, environ);
    return 0;
}
"""


def test_children_of_vfork_leave_no_memory_behind(preloaded: Preloaded, tmp_path: Path) -> None:
    """make starts each command so. Every page that is left behind was touched once."""
    gcc = build(tmp_path, "gcc", "int main(void) { return 0; }")
    program = build(tmp_path, "many", MANY_CHILDREN)
    assert int(preloaded.output(program, gcc)) < 100
    assert len(preloaded.governed()) == 201


ENVIRONMENTS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int execve(const char *path, char *const words[], char *const environment[])
{
    for (char *const *entry = environment; *entry; entry++)
        if (strncmp(*entry, "LD_PRELOAD=", 11) == 0)
            fprintf(stderr, "%s\n", *entry + 11);
    int (*real)(const char *, char *const[], char *const[]) = dlsym(RTLD_NEXT, "execve");
    return real(path, words, environment);
}
"""


def test_a_program_of_another_architecture_does_not_get_the_library(
    preloaded: Preloaded, ways: Path, tmp_path: Path
) -> None:
    """Its dynamic loader would complain. Seen by a library of the user's behind ours."""
    other = build(tmp_path, "other.so", ENVIRONMENTS, "-shared", "-fPIC", "-ldl")
    native = Path(sys.executable).resolve().read_bytes()[:4096]
    foreign = bytearray(native)
    foreign[18:20] = b"\x02\x00"  # a SPARC
    write_program(tmp_path / "native", "").write_bytes(native)
    write_program(tmp_path / "foreign", "").write_bytes(foreign)
    write_program(tmp_path / "narrow", "").write_bytes(native[:4] + b"\x01" + native[5:])
    write_program(tmp_path / "qemu-sparc", "").write_bytes(native)
    both = f"{preloaded.library}:{other}"
    preloaded.environment["LD_PRELOAD"] = both
    seen = {
        name: preloaded.run(ways, "execve", tmp_path / name).stderr.strip()
        for name in ("native", "a.c", "foreign", "narrow", "qemu-sparc")
    }
    assert [*seen.values()] == [both] * 2 + [str(other)] * 3, seen

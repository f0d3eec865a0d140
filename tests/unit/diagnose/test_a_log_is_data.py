"""A log is data: nothing that it names is started or opened, and no text of it is a command."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path

import pytest
from failure_index import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoker.diagnose.about import About
from stoker.diagnose.here import Here
from stoker.diagnose.sieve import read_log
from stoker.diagnose.texts import fix_script
from stoker.diagnose.values import Diagnosis, FailedRun
from stoker.diagnose.verdict import diagnose
from stoker.knowledge.failures import Shell

OPENS = ("open", "os.listdir", "os.scandir")
STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system")
EVENTS = {*OPENS, *STARTS}
EVIL = "#!/bin/sh\ntouch {marker}\n"
CACHE = "CMAKE_HOME_DIRECTORY:INTERNAL=/source\nCMAKE_GENERATOR:INTERNAL=Ninja\n"
NO_MODULE = "ModuleNotFoundError: No module named 'numpy'\n"
STALE = "CMake Error: The source /a does not match the source /b used to generate cache.\n"
NO_NINJA = "ninja: error: loading 'build.ninja': No such file or directory\n"
BUILT_IN = "-- Build files have been written to: {evil}/build\n"
# What facts look for in a log: each of these once named a file that was opened or a program that
# was started.
NAMED = (
    f"{{evil}}/bin/python3 setup.py build\n{NO_MODULE}",
    f'  File "{{evil}}/lib/python3.11/site-packages/a.py", line 1, in <module>\n{NO_MODULE}',
    BUILT_IN + NO_NINJA,
    STALE + BUILT_IN,
    "{evil}/bin/nvcc -c a.cu\nnvcc fatal   : Unsupported gpu architecture 'compute_120'\n",
    "{evil}/bin/gcc -c a.c\na.c:1:10: fatal error: {evil}/zlib.h: No such file or directory\n",
    "/usr/bin/ld: cannot find -l:{evil}/libz.so: No such file or directory\n",
    "ImportError: {evil}/libz.so.1: cannot open shared object file: No such file or directory\n",
    "/bin/sh: 1: {evil}/configure: Permission denied\n",
    "fatal error: error writing to {evil}/a.o: No space left on device\n",
    "ImportError: {evil}/libstdc++.so.6: version `GLIBCXX_3.4.99' not found (required by a.so)\n",
)  # fmt: skip

_listeners: list[list[tuple[str, str]]] = []


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if _listeners and event in EVENTS:
        _listeners[-1].append((event, " ".join(map(str, arguments[:2]))))


sys.addaudithook(_listen)


@contextmanager
def heard() -> Iterator[list[tuple[str, str]]]:
    """Give the files that are opened and the programs that are started meanwhile."""
    _listeners.append([])
    try:
        yield _listeners[-1]
    finally:
        _listeners.pop()


def answer(log: str, run: FailedRun | None = None, here: Here | None = None) -> Diagnosis:
    return diagnose(read_log(BytesIO(log.encode())), about=About(run=run, here=here))


def planted(evil: Path, log: str) -> None:
    """Make a program that leaves a marker under each name of a log that lies in a folder."""
    content = EVIL.format(marker=evil / "marker")
    for name in re.findall(rf"{re.escape(str(evil))}(/[\w./+-]+)", log):
        places = [name.lstrip("/")]
        prefix, of_python, _ = name[1:].partition("/lib/python")
        places += [f"{prefix}/bin/python3"] if of_python else []
        for place in places:
            file = evil / os.path.normpath(place)
            with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
                file.chmod(0o755)


@pytest.mark.parametrize("log", NAMED)
@pytest.mark.parametrize("known", [True, False], ids=["run", "log"])
def test_nothing_that_a_log_names_is_opened_or_started(
    log: str, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = tmp_path / "evil"
    for folder in ("build", "bin", "lib/python3.11/site-packages/torch"):
        (evil / folder).mkdir(parents=True)
    for name in ("build/CMakeCache.txt", "lib/python3.11/site-packages/torch/version.py"):
        (evil / name).write_text(CACHE)
    text = log.replace("{evil}", str(evil))
    planted(evil, text)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    run = FailedRun(command="ninja", folder=str(work)) if known else None
    with heard() as events:
        found = answer(text, run)
    assert [event for event in events if str(evil) in event[1]] == []
    assert not (evil / "marker").exists()
    assert found.lines


def test_nothing_that_the_examples_name_is_opened_or_started(tmp_path: Path) -> None:
    """All absolute paths of the examples lead to programs of an attacker."""
    evil, work = tmp_path / "evil", tmp_path / "work"
    work.mkdir()
    run, here = FailedRun(command="ninja", folder=str(work)), Here()
    for name, log in examples():
        text = re.sub(r"(?<![\w.:/<])/(?=[\w.]+/)", f"{evil}/", log)
        planted(evil, text)
        with heard() as events:
            answer(text, run, here)
        assert [event for event in events if str(evil) in event[1]] == [], name
    assert not (evil / "marker").exists()


COMMANDS = (
    *("apt-get", "apt-file", "cmake", "conda", "dnf", "git", "ldconfig", "make", "mkdir", "mv"),
    *("cp", "chmod", "chown", "ninja", "nohup", "pip", "python", "python3", "stoker", "sudo", "uv"),
    *("sysctl", "tee", "find", "xargs", "sed", "rustup", "id", "date", "docker", "ccache"),
    *(
        "cpan",
        "hipcc",
        "xcode-select",
        "grep",
        "printf",
        "cat",
        "head",
        "tr",
        "wc",
        "df",
        "ls",
        "env",
    ),
)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs that do nothing, the only ones that a script finds, but for touch."""
    folder = tmp_path_factory.mktemp("stubs")
    for name in COMMANDS:
        (folder / name).write_text("#!/bin/sh\nexit 0\n")
        (folder / name).chmod(0o755)
    (folder / "touch").symlink_to(shutil.which("touch") or "/bin/touch")
    return folder


def only_its_own_commands(script: str, stubs: Path, folder: Path) -> None:
    """Run a script where all programs are stubs: an attacker's would leave the file MARKER."""
    for words in (["-n"], ["-c", script.replace("\nset -e\n", "\n")]):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        ran = subprocess.run(
            ["/bin/sh", *words],
            check=False,
            cwd=folder,
            env={"PATH": str(stubs), "HOME": str(folder)},
            capture_output=True,
            input=script,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0 or words[0] == "-c", script + ran.stderr
        assert "MARKER" not in "".join(map(str, folder.rglob("*"))), script


INJECTED = tuple(
    text.replace("TOUCH", "touch MARKER")
    for text in (
        *("; TOUCH #", "$(TOUCH)", "`TOUCH`", "\n TOUCH\n", "& TOUCH", "| TOUCH", "|| TOUCH"),
        *("' ; TOUCH '", '" ; TOUCH "', "\\'; TOUCH; \\'", "\r TOUCH", "\u2028TOUCH"),
        *("\x85 TOUCH", "${x:=`TOUCH`}", '"$(TOUCH)"'),
    )
)


@pytest.mark.parametrize("text", INJECTED)
def test_a_command_that_a_log_shows_is_one_command(text: str, stubs: Path, tmp_path: Path) -> None:
    for program in ("make -v", "pip install .", "cmake --build .", "python3 setup.py build"):
        found = answer(
            f"$ {program}{text}\nc++: fatal error: Killed signal terminated program cc1plus\n"
        )
        assert found.findings
        only_its_own_commands(fix_script(found), stubs, tmp_path / "sandbox")
        assert all("touch MARKER" not in fix.build for fix in found.findings[0].advice)


@pytest.mark.parametrize("text", INJECTED)
def test_an_option_that_a_message_names_is_no_part_of_a_command(
    text: str, stubs: Path, tmp_path: Path
) -> None:
    for said in (
        f"configure: error: the mill does not grind here; use --disable-mill={text}",
        f"configure: error: the mill does not grind here; set -DMILL=a{text} or MILL_WHEEL={text}",
        f'ERROR: Unknown option: "mill{text}".',
        f"gen.py: error: unrecognized arguments: --wheel{text}",
        f"error: the mill requires at least one wheel: --wheel=a{text}",
    ):
        found = answer(f"{said}\nmake: *** [Makefile:3: mill] Error 1\n", FailedRun(command="make"))
        only_its_own_commands(fix_script(found), stubs, tmp_path / "sandbox")
        assert all(
            "MARKER" not in command
            for finding in found.findings
            for fix in finding.advice
            for command in (*fix.commands, fix.build)
        )


def _places() -> list[tuple[str, tuple[int, int]]]:
    """Return every word of every example, with where it is."""
    return [
        (log, match.span())
        for _, log in examples()
        for match in re.finditer(r"[^\s'\"`:,()]+", log)
    ]


PLACES = _places()
WORDS = st.one_of(
    st.sampled_from(INJECTED),
    st.text(st.sampled_from("a$(){};&|<>`'\"\\ \n\t#*?~!-=[]%\u202e\x1b"), max_size=12),
)


@settings(max_examples=100, deadline=None)
@given(place=st.sampled_from(PLACES), text=WORDS, joined=st.booleans())
@example(place=("$ make -v\nKilled\n", (7, 9)), text="-v; touch MARKER #", joined=False)
def test_no_word_of_a_log_is_a_command_of_the_script(
    place: tuple[str, tuple[int, int]], text: str, joined: bool, stubs: Path
) -> None:
    """One word of an example is replaced by, or joined with, text that a shell could execute."""
    log, (begin, end) = place
    changed = log[: end if joined else begin] + text + log[end:]
    found = answer(changed, FailedRun(command="ninja -C build", folder="/work; touch MARKER"))
    folder = Path(stubs.parent, "sandbox")
    fixes = [fix for finding in found.findings for fix in finding.advice if fix.shell is Shell.SH]
    typed = [line for fix in fixes for line in (*fix.commands, fix.build)]
    script = fix_script(found)
    only_its_own_commands("\n".join(["(", script, ":)", *typed, ""]), stubs, folder)


def test_the_interpreter_of_the_command_is_quoted(tmp_path: Path, stubs: Path) -> None:
    python = tmp_path / "a; touch MARKER" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 3.11 1 0\n")
    python.chmod(0o755)
    run = FailedRun(command=shlex.join([str(python), "setup.py", "build"]), folder=str(tmp_path))
    script = fix_script(answer(NO_MODULE, run))
    assert f"'{python}' -m pip install numpy" in script
    only_its_own_commands(script, stubs, tmp_path / "sandbox")


def test_a_log_from_elsewhere_names_no_program_of_a_fix(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    log = f"{tmp_path}/bin/python3 setup.py build\n{NO_MODULE}"
    assert str(tmp_path) not in fix_script(answer(log))
    ran = FailedRun(command="make", folder=str(tmp_path))
    assert f"{tmp_path}/bin/python3 -m pip install numpy" in fix_script(answer(log, ran))


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        (
            "pip install -e .[dev] --no-build-isolation",
            "pip install -e '.[dev]' --no-build-isolation",
        ),
        ("cmake --build build -j 8", "cmake --build build -j 8"),
        ("python setup.py develop", "python setup.py develop"),
        ("make -C /tmp/evil", ""),
        ("make -C ../evil", ""),
        ("make -f evil.mk", ""),
        ("make CC=/tmp/evil", ""),
        ("cmake -P evil.cmake", ""),
        ("pip install --index-url=x a", ""),
        ("pip install https://example.org/a.whl", ""),
        ("python -c 'import evil'", ""),
        ("rm -r .", ""),
    ],
)
def test_only_a_plain_build_command_is_taken_from_a_log(command: str, taken: str) -> None:
    found = answer(f"$ {command}\nc++: fatal error: Killed signal terminated program cc1plus\n")
    builds = {fix.build.removeprefix("stoker run -- ") for fix in found.findings[0].advice}
    assert builds - {""} == {taken} - {""}

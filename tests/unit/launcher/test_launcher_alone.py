"""Without a governor the launcher executes the command; under a compiler's name it finds the real
one.
"""

import stat
from pathlib import Path

import pytest

from unit.launcher.scripted import Launch, ScriptedGovernor, result


def test_it_becomes_the_command(plain: Launch) -> None:
    process = plain("/bin/sh", "-c", "echo $$; echo err >&2; exit 3")
    assert result(process) == (3, b"%d\n" % process.pid, b"err\n")


def test_within_a_step_it_does_not_ask(launch: Launch, governor: ScriptedGovernor) -> None:
    launch.environment["STOKER_STEP"] = "7"
    process = launch("/bin/sh", "-c", "echo $$")
    assert result(process) == (0, b"%d\n" % process.pid, b"")
    assert not governor.is_asked()


@pytest.mark.parametrize("socket", ["absent", "x" * 200, ""])
def test_without_a_listener_it_executes_the_command(
    plain: Launch, tmp_path: Path, socket: str
) -> None:
    plain.environment["STOKER_SOCKET"] = str(tmp_path / socket)
    process = plain("/bin/sh", "-c", "echo $$")
    assert result(process) == (0, b"%d\n" % process.pid, b"")


def test_a_dead_governor_leaves_signals_and_children_alone(plain: Launch, tmp_path: Path) -> None:
    plain.environment["STOKER_SOCKET"] = str(tmp_path / "absent")
    masks = "grep -E 'Sig(Blk|Ign|Pnd)' /proc/self/status"
    assert result(plain("/bin/sh", "-c", masks)) == result(plain.program(["/bin/sh", "-c", masks]))


@pytest.mark.parametrize("governed", [False, True])
def test_a_command_that_does_not_exist(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, governed: bool
) -> None:
    (tmp_path / "file").touch(mode=0o644)
    if governed:
        governor.permit_everything()
    else:
        del launch.environment["STOKER_SOCKET"]
    status, out, err = result(launch("no-such-command", "-c"))
    assert (status, out, err) == (127, b"", b"stoker-launcher: no-such-command: not found\n")
    status, out, err = result(launch(tmp_path / "file"))
    assert (status, out) == (126, b"")
    assert err.endswith(b"file: Permission denied\n")


@pytest.mark.parametrize("found", ["by its path", "on the PATH"])
def test_a_script_that_names_no_interpreter(plain: Launch, tmp_path: Path, found: str) -> None:
    """A shell runs it, as execvp of glibc does."""
    (tmp_path / "no-interpreter").write_text('echo "$0" "$@"; exit 3\n')
    (tmp_path / "no-interpreter").chmod(0o755)
    plain.environment["PATH"] += f":{tmp_path}"
    word = "no-interpreter" if found == "on the PATH" else str(tmp_path / "no-interpreter")
    said = f"{tmp_path / 'no-interpreter'} -c a  b\n".encode()
    assert result(plain(word, "-c", "a  b")) == (3, said, b"")


def test_its_own_options(plain: Launch) -> None:
    status, out, _ = result(plain("--version"))
    assert (status, out.split()[0], out.split()[-2:]) == (
        0,
        b"stoker-launcher",
        [b"protocol", b"7"],
    )
    assert b"CCACHE_PREFIX" in result(plain("--help"))[1]
    assert result(plain("--no-such-option"))[0] == 2
    assert result(plain())[0] == 2


def test_it_builds_as_a_mere_pass_through(tmp_path: Path, plain: Launch) -> None:
    """As on a system that is not Linux: main and what it needs, without the rest."""
    from unit.launcher.conftest import ROOT, names_option

    sources = [ROOT / "launcher" / name for name in ("launcher.c", "command.c", "compilers.c")]
    binary = tmp_path / "stoker-launcher"
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", names_option(tmp_path)]
    built = plain.program(["cc", "-std=c11", "-U__linux__", *warnings, *sources, "-o", binary])
    assert result(built) == (0, b"", b"")
    assert result(plain.program([binary, "/bin/echo", "x"])) == (0, b"x\n", b"")


def test_the_installed_parts_are_found_and_copied_once(stoker_home: Path) -> None:
    from stoker.govern.client.native import LAUNCHER, LIBRARY, installed, stable_native

    native = stable_native()
    launcher, library = Path(native.launcher), Path(native.library)
    remembered = stoker_home / "data/native/stoker-launcher"
    assert (Path(native.remembered), remembered.resolve()) == (remembered, launcher)
    assert launcher.read_bytes() == installed(LAUNCHER).read_bytes()
    assert library.read_bytes() == installed(LIBRARY).read_bytes()
    assert stat.S_IMODE(launcher.stat().st_mode) == 0o755
    first = launcher.stat()
    assert stable_native() == native
    assert launcher.stat().st_ino == first.st_ino
    launcher.write_bytes(b"damaged")
    remembered.unlink()
    remembered.write_bytes(b"of a version that had no link")
    stable_native()
    assert launcher.read_bytes() == installed(LAUNCHER).read_bytes()
    assert remembered.resolve() == launcher


def test_the_library_lies_where_its_path_can_be_preloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stoker.govern.client.native import stable_native

    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "with a space"))
    native = stable_native()
    assert " " not in native.library
    assert Path(native.library).is_file()
    assert Path(native.launcher).is_file()

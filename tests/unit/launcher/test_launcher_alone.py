"""Without a governor the launcher is the command; with a compiler's name it finds the real one."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from unit.launcher.scripted import Launch, ScriptedGovernor, result


def write_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_it_becomes_the_command(plain: Launch) -> None:
    process = plain("/bin/sh", "-c", "echo $$; echo err >&2; exit 3")
    assert result(process) == (3, b"%d\n" % process.pid, b"err\n")


def test_within_a_step_it_does_not_ask(launch: Launch, governor: ScriptedGovernor) -> None:
    launch.environment["STOKER_STEP"] = "7"
    process = launch("/bin/sh", "-c", "echo $$")
    assert result(process) == (0, b"%d\n" % process.pid, b"")
    assert not governor.is_asked()


@pytest.mark.parametrize("socket", ["absent", "x" * 200, ""])
def test_where_nobody_listens_it_becomes_the_command(
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


def test_its_own_options(plain: Launch) -> None:
    status, out, _ = result(plain("--version"))
    assert (status, out.split()[0], out.split()[-2:]) == (
        0,
        b"stoker-launcher",
        [b"protocol", b"3"],
    )
    assert b"CCACHE_PREFIX" in result(plain("--help"))[1]
    assert result(plain("--no-such-option"))[0] == 2
    assert result(plain())[0] == 2


@pytest.mark.parametrize("link", [os.symlink, os.link, shutil.copy2], ids=lambda f: f.__name__)
def test_a_link_stands_for_the_program_behind_it(
    plain: Launch, tmp_path: Path, link: Callable[[str, str], object]
) -> None:
    links, real = tmp_path / "links", tmp_path / "real"
    links.mkdir()
    for name in ("gcc", "cc1"):
        link(str(plain.launcher), str(links / name))
    write_script(real / "gcc", 'echo "$0" "$@"; echo "$PATH"')
    plain.environment["PATH"] = f"{links}:{links}:{real}:/bin"
    wanted = f"{real}/gcc -c a b\n{real}:/bin\n".encode()
    assert result(plain.program([links / "gcc", "-c", "a b"])) == (0, wanted, b"")
    assert result(plain.program(["/bin/sh", "-c", "gcc -c 'a b'"]))[1] == wanted
    status, _, err = result(plain.program([links / "cc1"]))
    assert (status, err) == (127, b"stoker-launcher: cc1: not found\n")


def test_a_folder_and_a_plain_file_of_that_name_are_not_programs(
    plain: Launch, tmp_path: Path
) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links/gcc").symlink_to(plain.launcher)
    (tmp_path / "folder/gcc").mkdir(parents=True)
    (tmp_path / "file").mkdir()
    (tmp_path / "file/gcc").touch(mode=0o644)
    write_script(tmp_path / "real/gcc", "echo real")
    plain.environment["PATH"] = ":".join(
        str(tmp_path / name) for name in ("folder", "links", "file", "real")
    )
    assert result(plain.program([tmp_path / "links/gcc"])) == (0, b"real\n", b"")


def test_wrappers_that_look_for_the_next_of_their_name(plain: Launch, tmp_path: Path) -> None:
    """Two launchers of different builds, and a wrapper that, like ccache, skips only itself."""
    for copy in ("old", "new"):
        (tmp_path / copy).mkdir()
        shutil.copy2(plain.launcher, tmp_path / copy / "gcc")
    write_script(
        tmp_path / "wrapper/gcc",
        'PATH=$(echo "$PATH" | sed "s|$(dirname "$0"):||"); echo wrapped; exec gcc "$@"',
    )
    write_script(tmp_path / "real/gcc", "echo real")
    folders = [tmp_path / name for name in ("old", "wrapper", "new", "real")]
    plain.environment["PATH"] = ":".join(map(str, [*folders, "/bin", "/usr/bin"]))
    process = plain.program([tmp_path / "old/gcc"])
    assert result(process) == (0, b"wrapped\nreal\n", b"")


def test_programs_that_find_each_other_forever_are_stopped(plain: Launch, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links/gcc").symlink_to(plain.launcher)
    write_script(tmp_path / "wrapper/gcc", f'exec {tmp_path}/links/gcc "$@"')
    plain.environment["PATH"] = f"{tmp_path}/wrapper:/bin:/usr/bin"
    status, _, err = result(plain.program([tmp_path / "links/gcc"]))
    assert (status, err) == (127, b"stoker-launcher: gcc: not found\n")


def test_a_path_with_empty_parts_means_the_working_folder(plain: Launch, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links/gcc").symlink_to(plain.launcher)
    write_script(tmp_path / "here/gcc", 'echo "$0 $PATH"')
    plain.environment["PATH"] = f":{tmp_path}/links:"
    process = plain.program([tmp_path / "links/gcc"], cwd=tmp_path / "here")
    assert result(process) == (0, b"./gcc .:.\n", b"")


def test_it_builds_as_a_mere_pass_through(tmp_path: Path, plain: Launch) -> None:
    """As on a system that is not Linux: main and what it needs, without the rest."""
    from unit.launcher.conftest import ROOT

    sources = [ROOT / "launcher" / name for name in ("launcher.c", "command.c", "compilers.c")]
    binary = tmp_path / "stoker-launcher"
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    built = plain.program(["cc", "-std=c11", "-U__linux__", *warnings, *sources, "-o", binary])
    assert result(built) == (0, b"", b"")
    assert result(plain.program([binary, "/bin/echo", "x"])) == (0, b"x\n", b"")


def test_the_installed_parts_are_found_and_copied_once(stoker_home: Path) -> None:
    from stoker.govern.launcher import LAUNCHER, LIBRARY, installed, stable_native

    native = stable_native()
    launcher, library = Path(native.launcher), Path(native.library)
    assert launcher == stoker_home / "data/native/stoker-launcher"
    assert launcher.read_bytes() == installed(LAUNCHER).read_bytes()
    assert library.read_bytes() == installed(LIBRARY).read_bytes()
    assert stat.S_IMODE(launcher.stat().st_mode) == 0o755
    first = launcher.stat()
    assert stable_native() == native
    assert launcher.stat().st_ino == first.st_ino
    launcher.write_bytes(b"of another version")
    stable_native()
    assert launcher.read_bytes() == installed(LAUNCHER).read_bytes()


def test_the_library_lies_where_its_path_can_be_preloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stoker.govern.launcher import stable_native

    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "with a space"))
    native = stable_native()
    assert " " not in native.library
    assert Path(native.library).is_file()
    assert Path(native.launcher).is_file()

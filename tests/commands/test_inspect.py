"""`stoker inspect` on a wheel, a library, a folder and an environment, made here."""

import json
import os
import struct
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from built_libraries import ARCH_SPECIFIC, CUBIN, PTX, build, entry, region, with_device_code
from conftest import Need, Stoker, find_tool
from wheel_files import DIST_INFO, METADATA, WHEEL, wheel_bytes

CODE = [
    entry(CUBIN, 80, bytes(5000)),
    entry(CUBIN, 90, bytes(3000), flags=ARCH_SPECIFIC),
    entry(PTX, 120, b".version 9.0"),
]
REQUIRES = b"Metadata-Version: 2.1\nName: mill\nVersion: 1.2\nRequires-Dist: nvidia-cublas-cu12\n\n"


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A library with device code, and one that needs it and another that is nowhere."""
    folder = tmp_path_factory.mktemp("libraries")
    device = with_device_code(find_tool, folder, region(CODE) + region(CODE[:1]))
    far = build(find_tool, folder, "-Wl,-soname,libquadmath.so.0", name="libquadmath.so.0")
    user = build(
        find_tool,
        folder,
        *("-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/lib", "-Wl,--no-as-needed"),
        *(str(device), str(far)),
        source='extern "C" int grind() { return 2; }',
        name="grind.so",
    )
    return {"mill/lib/libmill.so": device.read_bytes(), "mill/grind.so": user.read_bytes()}


def _wheel(folder: Path, libraries: dict[str, bytes], metadata: bytes = REQUIRES) -> Path:
    path = folder / "mill-1.2-py3-none-linux_x86_64.whl"
    contents = {
        **libraries,
        "mill/__init__.py": b"",
        f"{DIST_INFO}/METADATA": metadata,
        f"{DIST_INFO}/WHEEL": WHEEL,
    }
    path.write_bytes(wheel_bytes(contents))
    return path


def _json(stoker: Stoker, *arguments: str, **options: Any) -> Any:
    done = stoker("inspect", *arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _check(facts: Any, where: str) -> None:
    libraries = {library["path"]: library for library in facts["libraries"]}
    grind, mill = libraries[f"{where}grind.so"], libraries[f"{where}lib/libmill.so"]
    rows = [(c["kind"], c["arch"], c["size_bytes"], c["count"]) for c in mill["device_code"]]
    assert rows == [
        ("cubin", "sm_80", 10000, 2),
        ("cubin", "sm_90a", 3000, 1),
        ("ptx", "compute_120", 16, 1),
    ]
    assert grind["device_code"] == []
    assert grind["rpath"] == ["$ORIGIN/lib"]
    assert {"libquadmath.so.0"} < set(grind["needed"])
    assert mill["size_bytes"] > 13000
    assert facts["unresolved"] == ["libquadmath.so.0"]
    served = {row["arch"]: row["by"] for row in facts["runs_on"]}
    assert served["8.0"] == served["9.0"] == "cubin"
    assert served["12.0"] == "ptx"
    assert "7.5" not in served


def test_a_wheel(stoker: Stoker, tmp_path: Path, libraries: dict[str, bytes]) -> None:
    facts = _json(stoker, str(_wheel(tmp_path, libraries)))
    _check(facts, "mill/")
    assert facts["wheel"]["name"] == "mill"
    assert facts["wheel"]["tags"] == ["py3-none-any"]
    assert facts["wheel"]["requires"] == ["nvidia-cublas-cu12"]
    assert facts["minimum_driver"] is None


def test_a_folder(stoker: Stoker, tmp_path: Path, libraries: dict[str, bytes]) -> None:
    folder = tmp_path / "tree"
    for name, content in libraries.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "link.so").symlink_to("mill/grind.so")
    (folder / "gone.so").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.so")
    _check(_json(stoker, str(folder)), "mill/")


def test_names_that_no_terminal_likes(stoker: Stoker, tmp_path: Path, need: Need) -> None:
    """Markup, colours, bytes that are no text: as the name of a file, of the library, of a need."""
    folder = tmp_path / "odd"
    folder.mkdir()
    far = build(need, tmp_path, "-Wl,-soname,[/b]\x1b[31m.so", name="libfar.so")
    made = build(need, tmp_path, "-Wl,--no-as-needed", str(far), name="libodd.so")
    made.rename(folder / os.fsdecode(b"[bold]\xff\x1b[2J.so"))
    done = stoker("inspect", "odd", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert r"[bold]\udcff\x1b[2J.so" in done.stdout
    assert r"[/b]\x1b[31m.so" in done.stdout
    assert _json(stoker, "odd", cwd=tmp_path)["unresolved"] == [r"[/b]\x1b[31m.so"]


def test_one_library(stoker: Stoker, tmp_path: Path, libraries: dict[str, bytes]) -> None:
    (tmp_path / "libmill.so").write_bytes(libraries["mill/lib/libmill.so"])
    facts = _json(stoker, "libmill.so", cwd=tmp_path)
    assert [library["path"] for library in facts["libraries"]] == ["libmill.so"]
    assert len(facts["libraries"][0]["device_code"]) == 3
    page = stoker("inspect", "libmill.so", cwd=tmp_path)
    assert "sm_90a" in page.stdout
    assert ".nv_fatbin" in page.stdout


def test_an_installed_distribution(
    stoker: Stoker, tmp_path: Path, libraries: dict[str, bytes]
) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    with zipfile.ZipFile(_wheel(tmp_path, libraries)) as archive:
        archive.extractall(packages)
    facts = _json(stoker, "Mill", VIRTUAL_ENV=str(environment))
    _check(facts, "mill/")
    assert facts["kind"] == "installed"
    assert facts["wheel"]["version"] == "1.2"
    (packages / DIST_INFO / "RECORD").write_bytes(b"mill/\xff,,,,\n")
    broken = stoker("inspect", "mill", VIRTUAL_ENV=str(environment))
    assert broken.returncode == 1
    assert f"{DIST_INFO}/RECORD" in broken.stderr
    unknown = stoker("inspect", "no-such-thing", VIRTUAL_ENV=str(environment))
    assert unknown.returncode == 2
    assert "no-such-thing" in unknown.stderr


def test_against_another(stoker: Stoker, tmp_path: Path, libraries: dict[str, bytes]) -> None:
    whole = _wheel(tmp_path, libraries)
    (tmp_path / "less").mkdir()
    part = {"mill/grind.so": libraries["mill/grind.so"]}
    less = _wheel(tmp_path / "less", part, METADATA)
    rows = _json(stoker, str(whole), "--against", str(less))["differences"]
    found = {(row["subject"], row["name"]): (row["before"], row["after"]) for row in rows}
    assert found["mill/lib/libmill.so", "sm_90a"][0] is None  # the other one is "before"
    assert found["", "requires nvidia-cublas-cu12"][0] is None
    assert _json(stoker, str(whole), "--against", str(whole))["differences"] == []
    assert "sm_90a" in stoker("inspect", str(whole), "--against", str(less)).stdout


def test_one_library_against_another(
    stoker: Stoker, tmp_path: Path, libraries: dict[str, bytes]
) -> None:
    """Their names differ, and what they have in common is not called removed and added."""
    for name in ("old.so", "new.so"):
        (tmp_path / name).write_bytes(libraries["mill/grind.so"])
    words = (str(tmp_path / "new.so"), "--against", str(tmp_path / "old.so"))
    assert _json(stoker, *words)["differences"] == []
    (tmp_path / "new.so").write_bytes(libraries["mill/lib/libmill.so"])
    rows = _json(stoker, *words)["differences"]
    assert {row["subject"] for row in rows} == {"", "library"}


def test_a_broken_library_is_named_and_the_rest_is_read(
    stoker: Stoker, tmp_path: Path, libraries: dict[str, bytes]
) -> None:
    content = bytearray(libraries["mill/lib/libmill.so"])
    place = content.index(region(CODE)) + 16
    struct.pack_into("<Q", content, place + 8, 1 << 40)
    broken = {**libraries, "mill/lib/libmill.so": bytes(content)}
    done = stoker("inspect", str(_wheel(tmp_path, broken)), "--json")
    assert done.returncode == 1
    assert f"mill/lib/libmill.so at byte {place}" in done.stderr
    assert "Traceback" not in done.stderr
    read = {library["path"]: library["problem"] for library in json.loads(done.stdout)["libraries"]}
    assert read["mill/grind.so"] is None
    assert "larger than its region" in read["mill/lib/libmill.so"]


@pytest.mark.parametrize(
    ("name", "content", "status", "words"),
    [
        ("a.whl", b"PK\x05\x06 no", 1, "not a zip file"),
        ("a.whl", b"", 1, "not a zip file"),
        ("a.so", b"MZ", 2, "neither a wheel nor an ELF file"),
        ("a.so", b"\x7fELF\x02\x01", 1, "a.so at byte 0"),
        ("a/b.whl", None, 2, "there is no file or folder"),
    ],
)
def test_what_is_not_what_it_seems(
    stoker: Stoker, tmp_path: Path, name: str, content: bytes | None, status: int, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = stoker("inspect", name, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr

"""Rewriting and packing wheels: contents, names and reproducible bytes."""

import email.parser
import os
import re
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest
from zlib_ng import zlib_ng

from stoker.model.errors import ArtifactError, StorageError, UsageError
from stoker.wheel.zip import Content, Edit, open_wheel, rewrite
from wheel_files import (
    ATTRIBUTES,
    DIST_INFO,
    LIBRARY,
    METADATA,
    NAME,
    WHEEL,
    entry_at,
    make_wheel,
    members,
    packed,
    record,
    unpacked,
    wheel_bytes,
    zipped,
)

SO = "mill/lib/libmill.so"
PY = "mill/__init__.py"
RECORD = f"{DIST_INFO}/RECORD"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_wheel(tmp_path)


def edited(source: Path, into: Path, edit: Edit, workers: int | None = None) -> Path:
    with open_wheel(source) as wheel:
        return rewrite(wheel, edit, into, workers=workers)


def of(**contents: bytes) -> Edit:
    return Edit(contents={name: Content.of_bytes(data) for name, data in contents.items()})


def compressed(path: Path, name: str) -> bytes:
    with open_wheel(path) as wheel:
        return b"".join(wheel.archive.compressed(wheel.members[name]))


def test_a_changed_member_is_new_and_the_others_are_untouched(source: Path, tmp_path: Path) -> None:
    target = edited(source, tmp_path / "out", of(**{SO: b"new"}))
    assert target == tmp_path / "out" / NAME
    contents = {**members(), SO: b"new"}
    by_name = sorted(contents, key=lambda name: (name.startswith(DIST_INFO), name))
    rows = record({name: contents[name] for name in by_name})
    assert unpacked(target) == {**contents, RECORD: rows}
    assert compressed(target, PY) == compressed(source, PY)


def test_members_are_sorted_with_dist_info_and_record_at_the_end(tmp_path: Path) -> None:
    contents = dict(reversed(members(**{"zoo.py": b"1", "Alpha.py": b"2"}).items()))
    contents[f"{DIST_INFO}/a.txt"] = b""
    target = edited(make_wheel(tmp_path, wheel_bytes(contents)), tmp_path / "out", Edit())
    order = ["Alpha.py", PY, "mill/empty.py", SO, "zoo.py"]
    inside = [f"{DIST_INFO}/{name}" for name in ("METADATA", "WHEEL", "a.txt", "RECORD")]
    assert list(unpacked(target)) == order + inside


def test_times_are_fixed_and_modes_are_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = source.read_bytes()
    mode = struct.pack("<L", 0o100755 << 16)
    position = entry_at(data, SO) + ATTRIBUTES
    source.write_bytes(data[:position] + mode + data[position + 4 :])
    for epoch, year in ((None, 1980), ("1700000000", 2023), ("5", 1980), ("9999999999", 1980)):
        monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
        if epoch:
            monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        target = edited(source, tmp_path / "out", of(**{SO: b"new"}))
        with zipfile.ZipFile(target) as archive:
            assert {info.date_time[0] for info in archive.infolist()} == {year}
            modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        assert modes.pop(SO) == stat.S_IFREG | 0o755
        assert set(modes.values()) == {stat.S_IFREG | 0o644}


@pytest.mark.parametrize("epoch", ["soon", "1e9", "-" + "9" * 30])
def test_a_wrong_epoch_is_an_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
        edited(source, tmp_path / "out", Edit())


def test_the_bytes_depend_neither_on_cores_nor_on_how_content_arrives(
    source: Path, tmp_path: Path
) -> None:
    content = b"".join(b"%d," % (number * number) for number in range(200_000))
    (tmp_path / "file").write_bytes(content)
    pieces = [content[start : start + 70_001] for start in range(0, len(content), 70_001)]
    arrivals = [
        Content.of_bytes(content),
        Content.of_file(tmp_path / "file"),
        Content(size=len(content), chunks=lambda: [b"", *pieces]),
    ]
    written = {
        edited(source, tmp_path / "out", Edit(contents={SO: arrival}), workers).read_bytes()
        for arrival in arrivals
        for workers in (1, 2, 7)
    }
    assert len(written) == 1
    assert unpacked(tmp_path / "out" / NAME)[SO] == content


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 2 << 20])
def test_sizes_near_the_size_of_a_chunk(source: Path, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    target = edited(source, tmp_path / "out", of(**{SO: content, "mill/new": content}))
    assert unpacked(target)[SO] == content
    assert unpacked(target)["mill/new"] == content


def test_cutting_into_chunks_costs_next_to_nothing(source: Path, tmp_path: Path) -> None:
    library = sorted(Path(os.__file__).parent.glob("*.py"))
    content = b"".join(path.read_bytes() for path in library)
    target = edited(source, tmp_path / "out", of(**{SO: content}))
    with open_wheel(target) as wheel:
        size = wheel.members[SO].compressed_size
    assert len(content) > 3 << 20
    assert size < 1.001 * len(zlib_ng.compress(content, 6))
    assert size < 1.04 * len(zlib.compress(content, 6))


def test_members_are_added(source: Path, tmp_path: Path) -> None:
    script = Content(size=1, chunks=lambda: [b"2"], mode=0o755)
    edit = Edit(contents={"mill/new.py": Content.of_bytes(b"1"), "mill/run.sh": script})
    target = edited(source, tmp_path / "out", edit)
    added = {"mill/new.py": b"1", "mill/run.sh": b"2"}
    assert unpacked(target).items() >= {**members(), **added}.items()
    with open_wheel(target) as wheel:
        assert wheel.members["mill/run.sh"].mode == 0o755
        assert not [*wheel.mismatches(), *wheel.wrong_hashes()]


def test_stored_members_stay_stored(tmp_path: Path) -> None:
    contents = {**members(), RECORD: record(members())}
    data = zipped(contents, method=zipfile.ZIP_STORED, describe=True)
    target = edited(make_wheel(tmp_path, data), tmp_path / "out", of(**{PY: b"x"}))
    assert unpacked(target)[SO] == LIBRARY
    with zipfile.ZipFile(target) as archive:
        assert archive.getinfo(SO).compress_type == zipfile.ZIP_STORED
        assert archive.getinfo(SO).flag_bits == 0


def test_stored_members_are_compressed_on_request(tmp_path: Path) -> None:
    """Also one that the edit does not name; its content must be what RECORD says."""
    contents = {**members(), RECORD: record(members())}
    source = make_wheel(tmp_path, zipped(contents, method=zipfile.ZIP_STORED))
    target = edited(source, tmp_path / "out", Edit(compress=True))
    assert unpacked(target)[SO] == LIBRARY
    unsized = re.sub(rb",\d+$", b",", contents[RECORD], flags=re.MULTILINE)
    source = make_wheel(tmp_path, zipped({**contents, RECORD: unsized}, method=zipfile.ZIP_STORED))
    assert edited(source, tmp_path / "out", Edit(compress=True)).read_bytes() == target.read_bytes()
    with zipfile.ZipFile(target) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    wrong = zipped({**contents, SO: LIBRARY[::-1]}, method=zipfile.ZIP_STORED)
    renamed = {f"{DIST_INFO}/METADATA": Content.of_bytes(METADATA.replace(b"1.2", b"1.3"))}
    for edit in (Edit(compress=True), Edit(compress=True, contents=renamed)):
        with pytest.raises(ArtifactError, match="not what RECORD says"):
            edited(make_wheel(tmp_path, wrong), tmp_path / "wrong", edit)
    assert not (tmp_path / "wrong").exists() or not list((tmp_path / "wrong").iterdir())


def test_a_signature_does_not_outlive_its_record(tmp_path: Path) -> None:
    data = zipped({**members(), f"{DIST_INFO}/RECORD.jws": b"{}", RECORD: record(members())})
    target = edited(make_wheel(tmp_path, data), tmp_path / "out", Edit())
    assert f"{DIST_INFO}/RECORD.jws" not in unpacked(target)


def test_a_wheel_can_replace_itself(source: Path) -> None:
    assert edited(source, source.parent, of(**{SO: b"new"})) == source
    assert unpacked(source)[SO] == b"new"
    assert list(source.parent.iterdir()) == [source]


def test_rewriting_twice_changes_nothing_more(source: Path, tmp_path: Path) -> None:
    once = edited(source, tmp_path / "once", of(**{SO: b"new", "ü.py": b""}))
    twice = edited(once, tmp_path / "twice", Edit())
    assert twice.read_bytes() == once.read_bytes()


def test_a_new_version_renames_file_dist_info_and_data(tmp_path: Path) -> None:
    contents = members(**{"mill-1.2.data/scripts/grind": b"#!python\n"})
    source = make_wheel(tmp_path, wheel_bytes(contents))
    metadata = METADATA.replace(b"1.2", b"1.2+CU132.sm90")
    wheel = WHEEL.replace(b"py3-none-any", b"cp311-cp311-manylinux_2_28_x86_64")
    edit = of(**{f"{DIST_INFO}/METADATA": metadata, f"{DIST_INFO}/WHEEL": wheel})
    target = edited(source, tmp_path / "out", edit)
    assert target.name == "mill-1.2+cu132.sm90-cp311-cp311-manylinux_2_28_x86_64.whl"
    with open_wheel(target) as result:
        assert result.dist_info == "mill-1.2+cu132.sm90.dist-info"
        assert "mill-1.2+cu132.sm90.data/scripts/grind" in result.members
        assert not [*result.mismatches(), *result.wrong_hashes()]
    assert not [name for name in unpacked(target) if "1.2.d" in name]


def test_a_bad_tag_cannot_lead_the_file_elsewhere(source: Path, tmp_path: Path) -> None:
    wheel = WHEEL.replace(b"py3-none-any", b"py3-none-../../any")
    with pytest.raises(ArtifactError, match="is not a tag"):
        edited(source, tmp_path / "out", of(**{f"{DIST_INFO}/WHEEL": wheel}))


@pytest.mark.parametrize("gone", ["METADATA", "WHEEL"])
def test_a_wheel_needs_its_metadata(tmp_path: Path, gone: str) -> None:
    left = {name: text for name, text in members().items() if name != f"{DIST_INFO}/{gone}"}
    source = make_wheel(tmp_path, wheel_bytes(left))
    with pytest.raises(ArtifactError, match="no such member"):
        edited(source, tmp_path / "out", Edit())


def interrupted() -> list[bytes]:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (of(**{"../x": b""}), "leads out"),
        (of(**{"/etc/passwd": b""}), "absolute"),
        (of(**{"a\\b": b""}), "backslash"),
        (of(**{"a/": b""}), "needs a name"),
        (of(**{f"{PY}/b": b""}), "both a file and a folder"),
        (of(**{"a" * 5000: b""}), "too long"),
        (of(**{"a\udcff": b""}), "invalid character"),
        (Edit(contents={SO: Content(size=3, chunks=lambda: [b"four"])}), "announced"),
        (Edit(contents={SO: Content(size=5, chunks=lambda: [b"four"])}), "announced"),
        (Edit(contents={SO: Content(size=0, chunks=lambda: [b"four"])}), "announced"),
        (Edit(contents={SO: Content(size=1, chunks=list)}), "announced"),
    ],
)
def test_a_wrong_edit_is_refused(source: Path, tmp_path: Path, edit: Edit, words: str) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ArtifactError, match=words):
        edited(source, tmp_path / "out", edit)
    assert not list((tmp_path / "out").iterdir())


def test_an_interrupt_leaves_nothing_behind(source: Path, tmp_path: Path) -> None:
    edit = Edit(contents={"zoo": Content(size=1, chunks=interrupted)})
    with pytest.raises(KeyboardInterrupt):
        edited(source, tmp_path / "out", edit)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    "contents",
    [
        {k: v for k, v in members().items() if k != PY},
        {**members(), "mill/gone": b""},
        {**members(), PY: b"x"},
    ],
)
def test_a_wrong_record_is_not_carried_on(tmp_path: Path, contents: dict[str, bytes]) -> None:
    source = make_wheel(tmp_path, zipped({**members(), RECORD: record(contents)}))
    with pytest.raises(ArtifactError, match="RECORD"):
        edited(source, tmp_path / "out", Edit())


def test_a_source_cut_short_while_it_is_read(source: Path, tmp_path: Path) -> None:
    with open_wheel(source) as wheel:
        _ = wheel.record
        metadata = {f"{DIST_INFO}/METADATA": METADATA, f"{DIST_INFO}/WHEEL": WHEEL}
        os.truncate(source, 100)
        with pytest.raises(ArtifactError, match=f"could be read here|{PY}"):
            rewrite(wheel, of(**metadata), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_that_cannot_be_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        edited(source, tmp_path / "file" / "out", Edit())


def test_content_of_something_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        Content.of_file(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link", "."):
        with pytest.raises(ArtifactError, match="not a regular file"):
            Content.of_file(tmp_path / name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, content in members().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o644)
    (root / SO).chmod(0o755)
    return root


def test_pip_installs_what_was_written(folder: Path, tmp_path: Path) -> None:
    made = packed(folder, tmp_path / "packed")
    code = b"def grind(corn):\n    return 'flour'\n"
    target = edited(made, tmp_path / "out", of(**{PY: code}))
    into = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target"]
    subprocess.run([*command, into, target], check=True, capture_output=True)
    assert (into / PY).read_bytes() == code
    assert os.access(into / SO, os.X_OK)
    installed = (into / DIST_INFO / "METADATA").read_bytes()
    assert email.parser.BytesParser().parsebytes(installed)["Version"] == "1.2"

"""Reading wheels: valid ones of every kind, and refused ones, with member and offset."""

import os
import struct
import zipfile
from pathlib import Path

import pytest

from stoker.model.errors import ArtifactError, StokerError, UsageError
from stoker.wheel.zip import ZipLimits, open_wheel
from wheel_files import (
    ATTRIBUTES,
    CODE,
    COMPRESSED,
    CRC,
    DIST_INFO,
    FLAGS,
    LIBRARY,
    LOCAL_COMPRESSED,
    LOCAL_CRC,
    LOCAL_FLAGS,
    LOCAL_METHOD,
    LOCAL_SIZE,
    METHOD,
    NAME_AT,
    OFFSET,
    SIZE,
    SYSTEM,
    Breakage,
    digest,
    entry_at,
    header_at,
    make_wheel,
    members,
    patched,
    record,
    renamed,
    sparse_zip,
    wheel_bytes,
    zipped,
)

SO = "mill/lib/libmill.so"
PY = "mill/__init__.py"
RECORD = f"{DIST_INFO}/RECORD"


def full() -> dict[str, bytes]:
    return {**members(), RECORD: record(members())}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(zipped(full()), id="deflated"),
        pytest.param(zipped(full(), method=zipfile.ZIP_STORED), id="stored"),
        pytest.param(zipped(full(), describe=True), id="sizes after the data"),
        pytest.param(zipped(full(), zip64=True), id="zip64 fields"),
        pytest.param(zipped(full(), zip64=True, describe=True), id="zip64 fields after the data"),
    ],
)
def test_every_way_to_write_a_wheel_is_read(tmp_path: Path, data: bytes) -> None:
    with open_wheel(make_wheel(tmp_path, data)) as wheel:
        assert {name: wheel.read(name) for name in wheel.members} == full()
        assert wheel.dist_info == DIST_INFO
        assert not [*wheel.mismatches(), *wheel.wrong_hashes()]


def test_members_say_what_is_known_of_them(tmp_path: Path) -> None:
    data = zipped(full(), modes={SO: 0o755})
    with open_wheel(make_wheel(tmp_path, data)) as wheel:
        member = wheel.members[SO]
        assert (member.size, member.mode) == (len(LIBRARY), 0o755)
        assert member.offset == header_at(data, SO)
        assert member.data == member.offset + 30 + len(SO)
        assert wheel.members[PY].mode == 0o644


def test_folders_are_skipped(tmp_path: Path) -> None:
    data = zipped({"mill/": b"", **full()}, method=zipfile.ZIP_STORED)
    data = patched(data, entry_at(data, "mill/") + ATTRIBUTES, "<L", 0o040755 << 16)
    with open_wheel(make_wheel(tmp_path, data)) as wheel:
        assert wheel.members.keys() == full().keys()


def test_names_that_are_not_ascii_are_read(tmp_path: Path) -> None:
    contents = members(**{"mill/größe.py": b"1"})
    with open_wheel(make_wheel(tmp_path, wheel_bytes(contents))) as wheel:
        assert wheel.read("mill/größe.py") == b"1"
        assert not list(wheel.mismatches())


def test_large_members_are_streamed_in_chunks(tmp_path: Path) -> None:
    content = os.urandom(1 << 20) * 3 + bytes(3 << 20)
    data = wheel_bytes(members(**{"mill/big": content}))
    with open_wheel(make_wheel(tmp_path, data)) as wheel:
        chunks = list(wheel.stream("mill/big"))
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) <= 1 << 20


def test_a_member_of_more_than_4_gib_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.whl"
    sparse_zip(path, RECORD, (4 << 30) + 5)
    with open_wheel(path) as wheel:
        assert wheel.members[RECORD].size == (4 << 30) + 5
        with pytest.raises(ArtifactError, match="is too large here"):
            wheel.read(RECORD)


def in_entry(name: str, field: int, form: str, value: int) -> Breakage:
    return lambda data: patched(data, entry_at(data, name) + field, form, value)


def in_header(name: str, field: int, form: str, value: int) -> Breakage:
    return lambda data: patched(data, header_at(data, name) + field, form, value)


def in_both(name: str, field: int, local_field: int, form: str, value: int) -> Breakage:
    def breakage(data: bytes) -> bytes:
        return in_entry(name, field, form, value)(in_header(name, local_field, form, value)(data))

    return breakage


def name_of(new: str) -> Breakage:
    return lambda data: renamed(data, SO, new)


def inserted_after(name: str, more: bytes) -> Breakage:
    """Bytes between two members, everything behind moved along."""

    def breakage(data: bytes) -> bytes:
        names = list(full())
        following = header_at(data, names[names.index(name) + 1])
        for later in names[names.index(name) + 1 :]:
            position = entry_at(data, later) + OFFSET
            data = patched(data, position, "<L", header_at(data, later) + len(more))
        start = struct.unpack_from("<L", data, len(data) - 6)[0]
        data = patched(data, len(data) - 6, "<L", start + len(more))
        return data[:following] + more + data[following:]

    return breakage


def refused(folder: Path, data: bytes, words: str | None = None) -> str:
    path = make_wheel(folder, data)
    with pytest.raises(ArtifactError, match=words) as caught, open_wheel(path):
        pass
    assert str(path) in str(caught.value)
    return str(caught.value)


BROKEN: dict[str, tuple[Breakage, str]] = {
    "absolute path": (name_of("/tmp/lib/libmill.so"), "absolute"),
    "path that leads out": (name_of("mill/../../bmill.so"), "leads out"),
    "path that starts by leading out": (name_of("../../lib/libmil.so"), "leads out"),
    "backslash": (name_of("mill\\lib\\libmill.so"), "backslash"),
    "drive letter": (name_of("C:ll/lib/libmill.so"), "drive letter"),
    "control character": (name_of("mill/lib/libmill\n.s"), "invalid character"),
    "empty part": (name_of("mill//ib/libmill.so"), "empty part"),
    "dot part": (name_of("mill/./b/libmill.so"), "empty part"),
    "symbolic link": (in_entry(SO, ATTRIBUTES, "<L", 0o120777 << 16), "symbolic link"),
    "named pipe": (in_entry(SO, ATTRIBUTES, "<L", 0o010644 << 16), "not a regular file"),
    "folder with content": (name_of("mill/lib/libmill.s/"), "folder|not a regular file"),
    "encrypted": (in_both(SO, FLAGS, LOCAL_FLAGS, "<H", 1), "encrypted"),
    "patch data": (in_both(SO, FLAGS, LOCAL_FLAGS, "<H", 1 << 5), "flags 0x0020"),
    "later version": (in_entry(SO, 6, "<H", 99), "version 99"),
    "bzip2": (in_both(SO, METHOD, LOCAL_METHOD, "<H", 12), "method 12"),
    "zstd": (in_both(SO, METHOD, LOCAL_METHOD, "<H", 93), "method 93"),
    "stored with two sizes": (in_both(SO, METHOD, LOCAL_METHOD, "<H", 0), "two sizes"),
    "name not marked as UTF-8": (name_of("mill/lib/libmilü.s"), "ASCII"),
    "other name before the data": (
        lambda data: patched(data, header_at(data, SO) + 30, "<B", ord("w")),
        "another name",
    ),
    "other method before the data": (in_header(SO, LOCAL_METHOD, "<H", 0), "contradicts"),
    "other flags before the data": (in_header(SO, LOCAL_FLAGS, "<H", 1 << 3), "contradicts"),
    "other size before the data": (in_header(SO, LOCAL_SIZE, "<L", 7), "other sizes"),
    "other checksum before the data": (in_header(SO, LOCAL_CRC, "<L", 7), "other sizes"),
    "no local header": (in_header(SO, 0, "<B", 0), "not a local header"),
    "header past the end": (in_entry(SO, OFFSET, "<L", 2**31), "truncated"),
    "two members in one place": (
        lambda data: in_entry(PY, OFFSET, "<L", header_at(data, SO))(data),
        "another name|overlaps",
    ),
    "data that overlaps": (in_both(SO, COMPRESSED, LOCAL_COMPRESSED, "<L", 10**6), "overlaps"),
    "hidden bytes": (inserted_after(SO, b"PK\x03\x04 hidden"), "belong to no member"),
    "bytes before": (lambda data: b"#!/bin/sh\n" + data, "not where"),
    "bytes behind": (lambda data: data + b"\0", "no end of the central directory"),
    "two names": (in_entry("mill/empty.py", NAME_AT, "<B", ord("k")), "another name"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_wheel_is_refused_in_words(tmp_path: Path, what: str) -> None:
    breakage, words = BROKEN[what]
    assert "at byte" in refused(tmp_path, breakage(zipped(full())), words)


def test_errors_name_the_member(tmp_path: Path) -> None:
    data = in_entry(SO, ATTRIBUTES, "<L", 0o120777 << 16)(zipped(full()))
    refused(tmp_path, data, f"{SO} at byte {entry_at(data, SO)}")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(PY, b"import os\n")
    refused(tmp_path, path.read_bytes(), "this member twice")


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ({**full(), f"{PY}/more.py": b""}, "both a file and a folder"),
        ({"a.py": b""}, r"no .dist-info folder"),
        ({**full(), "other-1.dist-info/METADATA": b""}, r"mill.*and other"),
    ],
)
def test_a_zip_file_that_is_no_wheel_is_refused(
    tmp_path: Path, contents: dict[str, bytes], words: str
) -> None:
    refused(tmp_path, zipped(contents), words)


def test_attributes_count_only_when_unix_wrote_them(tmp_path: Path) -> None:
    data = in_entry(SO, ATTRIBUTES, "<L", 0o120777 << 16)(zipped(full()))
    refused(tmp_path, in_entry(SO, SYSTEM, "<B", 3)(data))
    with open_wheel(make_wheel(tmp_path, in_entry(SO, SYSTEM, "<B", 0)(data))) as wheel:
        assert wheel.members[SO].mode == 0o644


@pytest.mark.parametrize("keep", [0, 1, 21, 22, 1000, -1, -22, -23, -200])
def test_a_wheel_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    refused(tmp_path, zipped(full())[:keep])


@pytest.mark.parametrize(
    ("breakage", "words"),
    [
        (in_both(SO, SIZE, LOCAL_SIZE, "<L", len(LIBRARY) - 1), "more than its declared size"),
        (in_both(SO, SIZE, LOCAL_SIZE, "<L", len(LIBRARY) + 1), "less than its declared size"),
        (in_both(SO, CRC, LOCAL_CRC, "<L", 7), "checksum"),
        (lambda data: patched(data, header_at(data, SO) + 30 + len(SO), "<B", 7), "broken"),
    ],
)
def test_broken_content_is_found_while_it_is_read(
    tmp_path: Path, breakage: Breakage, words: str
) -> None:
    data = breakage(zipped(full()))
    with open_wheel(make_wheel(tmp_path, data)) as wheel:
        with pytest.raises(ArtifactError, match=words) as caught:
            wheel.read(SO)
        assert SO in str(caught.value)
        assert wheel.read(PY) == CODE


def test_more_content_than_declared_stops_at_once(tmp_path: Path) -> None:
    bomb = bytes(20 << 20)
    data = in_both("mill/bomb", SIZE, LOCAL_SIZE, "<L", 10)(zipped({**full(), "mill/bomb": bomb}))
    with (
        open_wheel(make_wheel(tmp_path, data)) as wheel,
        pytest.raises(ArtifactError, match="more than its declared size"),
    ):
        next(wheel.stream("mill/bomb"))


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        (ZipLimits(free=10**6, ratio=100), True),
        (ZipLimits(free=10**6, ratio=10**4), False),
        (ZipLimits(free=10**9, ratio=1), False),
        (ZipLimits(free=10**9, ratio=10**4, unpacked=10**6), True),
    ],
)
def test_a_zip_bomb_is_known_by_what_it_claims(
    tmp_path: Path, limits: ZipLimits, refused: bool
) -> None:
    path = make_wheel(tmp_path, wheel_bytes(members(**{"mill/zeros": bytes(2 << 20)})))
    if refused:
        with pytest.raises(ArtifactError, match="zip bomb"), open_wheel(path, limits):
            pass
    else:
        with open_wheel(path, limits) as wheel:
            assert wheel.members["mill/zeros"].size == 2 << 20


def with_record(content: bytes) -> bytes:
    return zipped({**members(), RECORD: content})


@pytest.mark.parametrize(
    ("content", "member", "words"),
    [
        (record({**members(), "mill/gone.py": b""}), "mill/gone.py", "does not contain"),
        (record({k: v for k, v in members().items() if k != PY}), PY, "does not list"),
        (
            record({**members(), PY: CODE + b"#"}),
            PY,
            f"says {len(CODE) + 1} bytes, the wheel {len(CODE)}",
        ),
        (record(members()).replace(digest(CODE).encode(), b"md5=abc"), PY, "sha256 or better"),
        (record(members()).replace(digest(CODE).encode(), b""), PY, "sha256 or better"),
    ],
)
def test_a_wrong_record_is_told(tmp_path: Path, content: bytes, member: str, words: str) -> None:
    with open_wheel(make_wheel(tmp_path, with_record(content))) as wheel:
        (mismatch,) = wheel.mismatches()
    assert mismatch.member == member
    assert words in mismatch.problem


def test_a_wrong_hash_is_found_in_the_content(tmp_path: Path) -> None:
    content = record(members()).replace(digest(CODE).encode(), digest(b"other").encode())
    with open_wheel(make_wheel(tmp_path, with_record(content))) as wheel:
        assert not list(wheel.mismatches())
        assert [mismatch.member for mismatch in wheel.wrong_hashes()] == [PY]


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"a,b\n",
        b"a,sha256=x,many\n",
        b"a,,1\na,,2\n",
        b'"a,,\n',
        b"".join(b"%d,,\n" % number for number in range(5000)),
    ],
)
def test_a_record_that_cannot_be_read_is_an_error(tmp_path: Path, content: bytes) -> None:
    with open_wheel(make_wheel(tmp_path, with_record(content))) as wheel:
        with pytest.raises(ArtifactError) as caught:
            _ = wheel.record
        assert RECORD in str(caught.value)


def test_a_missing_record_is_an_error(tmp_path: Path) -> None:
    with (
        open_wheel(make_wheel(tmp_path, zipped(members()))) as wheel,
        pytest.raises(ArtifactError, match="no such member"),
    ):
        _ = wheel.record


def test_what_is_not_there_or_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"), open_wheel(tmp_path / "none.whl"):
        pass
    with pytest.raises(StokerError), open_wheel(tmp_path):
        pass
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match="regular file"), open_wheel(tmp_path / "pipe"):
        pass


def test_a_misspelt_member_is_hinted_at(tmp_path: Path) -> None:
    with open_wheel(make_wheel(tmp_path)) as wheel, pytest.raises(ArtifactError) as caught:
        wheel.read("mill/__int__.py")
    assert caught.value.hints == (f"did you mean {PY}?",)

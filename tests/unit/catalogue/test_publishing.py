"""Changes of a catalogue in a folder: whole at every moment, incremental, repaired after a kill."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from catalogue_stores import FailingStore, KilledError, check_settled, check_whole, upload
from catalogue_wheels import published, releases
from small_disks import small_disk
from stoker.catalogue.document import decoded, encoded, with_wheels
from stoker.catalogue.index import Upload, add_wheels, remove_older, remove_wheels
from stoker.catalogue.store import FolderStore, Store
from stoker.catalogue.values import PublishedCatalogue
from stoker.model.errors import ArtifactError, StorageError, UsageError

Act = Callable[[Store], object]


def quiet(_: str) -> None:
    pass


def add(store: Store, *uploads: Upload, replace: bool = False) -> list[str]:
    return [wheel.file for wheel in add_wheels(store, uploads, replace=replace, say=quiet)]


@pytest.fixture
def wheels(tmp_path: Path) -> dict[str, Upload]:
    variants = ["cu128-sm80", "cu128-sm90", "cpu"]
    made = {name: upload(tmp_path / "made", published(name)) for name in variants}
    newer = published("cu128-sm90", version="2.10.0")
    return made | {"newer": upload(tmp_path / "made", newer)}


def test_publish_is_idempotent_and_incremental(tmp_path: Path, wheels: dict[str, Upload]) -> None:
    root = tmp_path / "index"
    store = FolderStore(root)
    assert len(add(store, wheels["cu128-sm80"], wheels["cu128-sm90"])) == 2
    before = {path: path.stat().st_ino for path in root.rglob("*") if path.is_file()}
    assert add(store, wheels["cu128-sm80"]) == []
    assert {path: path.stat().st_ino for path in before} == before
    assert len(add(store, wheels["newer"])) == 1
    replaced = {
        path.relative_to(root).as_posix() for path in before if path.stat().st_ino != before[path]
    }
    sm90 = {f"cu128-sm90/{name}" for name in ("index.html", "index.json")}
    sm90 |= {f"cu128-sm90/torch/{name}" for name in ("index.html", "index.json")}
    assert replaced <= sm90 | {"catalogue.json", "index.html"}
    assert "cu128-sm90/torch/index.html" in replaced
    assert len(check_settled(root).wheels) == 3


def test_one_more_in_a_large_catalogue(tmp_path: Path) -> None:
    """A thousand wheels are not touched: only the pages of one variant and the two lists are."""
    root = tmp_path / "index"
    variants = [f"cu128-sm{arch}" for arch in (75, 80, 86, 89, 90, 120)] + ["cpu", "cpu-avx2"]
    many = [wheel for variant in variants for wheel in releases(125, variant)]
    large = encoded(with_wheels(PublishedCatalogue(), many))
    FolderStore(root).write("catalogue.json", large)
    store = FailingStore(root, 0)
    add(store, upload(tmp_path / "made", published("cpu", version="3.0.0")))
    marker, wheel, metadata, pages, lists = 2, 1, 1, 4, 2
    assert store.changes == marker + wheel + metadata + pages + lists
    assert len(decoded((root / "catalogue.json").read_bytes(), "").wheels) == 1001
    links_of = (root / "cpu/torch/index.html").read_text().count("<a ")
    assert links_of == 126


def test_another_wheel_of_the_same_name(tmp_path: Path, wheels: dict[str, Upload]) -> None:
    root = tmp_path / "index"
    store = FolderStore(root)
    add(store, wheels["cpu"])
    other = upload(tmp_path / "other", published("cpu"), b"another build")
    with pytest.raises(UsageError, match="already has another") as raised:
        add(store, other)
    assert any("--replace" in hint for hint in raised.value.hints)
    assert check_settled(root).wheels == (wheels["cpu"].wheel,)
    assert add(store, other, replace=True) == [other.wheel.file]
    assert check_settled(root).wheels == (other.wheel,)
    assert (root / wheels["cpu"].wheel.path).exists(), "a download in progress can end"


def test_unpublish_and_prune(tmp_path: Path, wheels: dict[str, Upload]) -> None:
    root = tmp_path / "index"
    store = FolderStore(root)
    add(store, *wheels.values())
    gone = remove_wheels(store, ["torch==2.9.1"], "cu128-sm90", say=quiet)
    assert [wheel.version for wheel in gone] == ["2.9.1+cu128.sm90"]
    assert len(check_settled(root).wheels) == 3
    dry = remove_older(store, keep=None, dry_run=True, say=quiet)
    assert len(dry.files) == 2
    assert (root / gone[0].path).exists()
    assert remove_older(store, keep=None, dry_run=False, say=quiet) == dry
    assert not (root / gone[0].path).parent.exists()
    remove_wheels(store, [wheels["cpu"].wheel.file], None, say=quiet)
    assert not (root / "cpu").exists(), "a variant without wheels has no pages"
    with pytest.raises(UsageError, match="unknown wheel 'trch'") as raised:
        remove_wheels(store, ["trch"], None, say=quiet)
    assert "torch" in raised.value.hints[0]
    check_settled(root)


def test_a_catalogue_that_another_publisher_has_just_begun(
    tmp_path: Path, wheels: dict[str, Upload]
) -> None:
    """The other one publishes between our look at the empty folder and our first change."""
    root = tmp_path / "index"

    class Raced(FolderStore):
        def below(self, prefix: str) -> Iterator[tuple[str, int]]:
            if not (root / "catalogue.json").exists():
                add(FolderStore(root), wheels["cpu"])
            return super().below(prefix)

    add(Raced(root), wheels["newer"])
    assert len(check_settled(root).wheels) == 2


def test_prune_keeps_the_newest_versions(tmp_path: Path) -> None:
    root = tmp_path / "index"
    store = FolderStore(root)
    versions = ["2.8.0", "2.9.1", "2.10.0"]
    add(store, *(upload(tmp_path / "made", published("cpu", version=one)) for one in versions))
    pruned = remove_older(store, keep=2, dry_run=False, say=quiet)
    assert [wheel.version for wheel in pruned.wheels] == ["2.8.0+cpu"]
    assert [wheel.version for wheel in check_settled(root).wheels] == ["2.9.1+cpu", "2.10.0+cpu"]
    assert pruned.freed_bytes > 0


def acts(wheels: dict[str, Upload], tmp_path: Path) -> dict[str, Act]:
    other = upload(tmp_path / "other", published("cu128-sm90"), b"another build")
    return {
        "publish": lambda store: add(store, wheels["newer"], wheels["cpu"]),
        "replace": lambda store: add(store, other, replace=True),
        "unpublish": lambda store: remove_wheels(store, ["torch"], "cu128-sm90", say=quiet),
        "prune": lambda store: remove_older(store, keep=1, dry_run=False, say=quiet),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["publish", "replace", "unpublish", "prune"])
def test_a_publisher_that_dies_at_any_change(
    tmp_path: Path, wheels: dict[str, Upload], name: str
) -> None:
    """The catalogue is the old or the new one, and the next publisher completes the pages."""
    dies_at = 0
    seen = set()
    while True:
        dies_at += 1
        root = tmp_path / f"index{dies_at}"
        add(FolderStore(root), wheels["cu128-sm80"], wheels["cu128-sm90"])
        if name == "prune":
            add(FolderStore(root), wheels["newer"])
        old = check_settled(root)
        dying = FailingStore(root, dies_at)
        try:
            acts(wheels, tmp_path)[name](dying)
        except KilledError:
            seen.add(check_whole(root) == old)
        else:
            break
        last = upload(tmp_path / "made", published("cu128-sm86"))
        add(FolderStore(root), last)
        check_settled(root)
        with suppress(UsageError):  # what is gone already cannot be unpublished
            acts(wheels, tmp_path)[name](FolderStore(root))
        assert last.wheel in check_settled(root).wheels
    assert seen == {True, False}, "deaths before and after the change counted"


def test_a_full_disk(tmp_path: Path, wheels: dict[str, Upload]) -> None:
    with small_disk(tmp_path / "disk", "size=1m") as disk:
        root = disk / "index"
        store = FolderStore(root)
        add(store, wheels["cpu"])
        large = upload(tmp_path / "large", published("cu128-sm90"), bytes(4 << 20))
        with pytest.raises(StorageError, match="No space left on device"):
            add(store, large)
        assert check_whole(root).wheels == (wheels["cpu"].wheel,)
        add(store, wheels["cu128-sm80"])
        assert len(check_settled(root).wheels) == 2


def test_places_that_are_no_catalogue(tmp_path: Path, wheels: dict[str, Upload]) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="is not a catalogue"):
        add(FolderStore(full), wheels["cpu"])
    with pytest.raises(UsageError, match="is not a catalogue"):
        remove_wheels(FolderStore(full), ["torch"], None, say=quiet)
    assert [path.name for path in full.rglob("*")] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a catalogue of stoker"),
        ("[]", "not a catalogue of stoker"),
        ('{"format": 2, "wheels": 7}', "a newer format"),
        ('{"format": 1, "wheels": [{}]}', "not a catalogue of stoker"),
        ("[" * 100_000, "not a catalogue of stoker"),
    ],
)
def test_a_broken_catalogue_is_not_replaced(
    tmp_path: Path, wheels: dict[str, Upload], content: str, message: str
) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index/catalogue.json").write_text(content)
    with pytest.raises(ArtifactError, match=message):
        add(FolderStore(tmp_path / "index"), wheels["cpu"])
    assert (tmp_path / "index/catalogue.json").read_text() == content

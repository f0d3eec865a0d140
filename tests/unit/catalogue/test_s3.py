"""A catalogue in an object store, with moto as the S3 server."""

import threading
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from catalogue_stores import upload
from catalogue_wheels import published
from conftest import Stoker, missing
from stoker.catalogue.index import add_wheels, read_catalogue, remove_older, remove_wheels
from stoker.catalogue.pages import groups_of, index_pages
from stoker.catalogue.people_page import people_page
from stoker.catalogue.s3 import S3Store
from stoker.catalogue.store import ConflictError, open_store
from stoker.catalogue.values import PublishedCatalogue
from stoker.model.errors import MissingError, UsageError


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        missing("moto[server] is not installed")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def place(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty bucket, with the environment that leads to it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST"))
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/wheels", method="PUT"))
    return "s3://wheels/torch"


def quiet(_: str) -> None:
    pass


def check_settled(store: S3Store) -> PublishedCatalogue:
    """Every page is what the catalogue says, no other is there, and no marker is left."""
    catalogue, _ = read_catalogue(store)
    expected = index_pages(catalogue, groups_of(catalogue.wheels))
    there = {path for path, _ in store.below("") if "/index." in path}
    assert there == set(expected)
    for path, page in expected.items():
        assert (store.read(path) or (None,))[0] == page
    assert (store.read("index.html") or (None,))[0] == people_page(catalogue)
    assert list(store.below(".stoker/")) == []
    return catalogue


@pytest.mark.slow
def test_publish_and_remove(place: str, tmp_path: Path) -> None:
    store = open_store(place)
    assert isinstance(store, S3Store)
    one = upload(tmp_path, published("cu128-sm90"))
    two = upload(tmp_path, published("cpu"))
    assert len(add_wheels(store, [one, two], replace=False, say=quiet)) == 2
    assert add_wheels(store, [one], replace=False, say=quiet) == ()
    assert check_settled(store).wheels == (two.wheel, one.wheel)
    page = store._info("cpu/torch/index.html")
    assert page["ContentType"] == "text/html; charset=utf-8"
    remove_wheels(store, ["torch"], "cpu", say=quiet)
    assert check_settled(store).wheels == (one.wheel,)


def test_files_of_a_publisher_that_may_live_are_kept(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lock, only age tells what a killed publisher has left."""
    store = open_store(place)
    one = upload(tmp_path, published("cpu"))
    add_wheels(store, [one], replace=False, say=quiet)
    store.write("files/new/unknown.whl", b"just uploaded")
    kept = remove_older(store, keep=None, dry_run=False, say=quiet)
    assert kept.files == ()
    later = datetime.now(UTC) + timedelta(hours=2)
    clock = type("Later", (), {"now": staticmethod(lambda _: later)})
    monkeypatch.setattr("stoker.catalogue.s3.datetime", clock)
    gone = remove_older(store, keep=None, dry_run=False, say=quiet)
    assert gone.files == ("files/new/unknown.whl",)
    assert store.has(one.wheel.path, one.wheel.size_bytes)


def test_a_conditional_write(place: str) -> None:
    store = S3Store(place)
    store.write_expected("catalogue.json", b"one", None)
    with pytest.raises(ConflictError):
        store.write_expected("catalogue.json", b"two", None)
    found = store.read("catalogue.json")
    assert found is not None
    store.write_expected("catalogue.json", b"three", found[1])
    with pytest.raises(ConflictError):
        store.write_expected("catalogue.json", b"four", found[1])
    assert (store.read("catalogue.json") or (b"", ""))[0] == b"three"


@pytest.mark.slow
def test_publishers_at_the_same_time(place: str, tmp_path: Path) -> None:
    """They conflict all the time, in the same variant; nothing is lost and every page is right."""
    uploads = [upload(tmp_path, published("cpu", version=f"2.{number}.0")) for number in range(8)]
    errors = []

    def work(mine: slice) -> None:
        try:
            for one in uploads[mine]:
                add_wheels(S3Store(place), [one], replace=False, say=quiet)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(slice(n, None, 2),)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(check_settled(S3Store(place)).wheels) == len(uploads)


@pytest.mark.slow
def test_the_command(place: str, stoker: Stoker, tmp_path: Path) -> None:
    from catalogue_wheels import make_wheel

    wheel = make_wheel(tmp_path / "dist", variant="cpu")
    done = stoker("catalogue", "publish", str(wheel), "--to", place)
    assert done.returncode == 0, done.stderr
    chosen = stoker("catalogue", "select", place, "--for", "cpu", "--json")
    assert chosen.returncode == 0, chosen.stderr
    assert msgspec.json.decode(chosen.stdout)["wheels"][0]["project"] == "mill"
    refused = stoker("install", place, "mill", "--for", "cpu", "--print")
    assert refused.returncode == 2
    assert "https address" in refused.stderr


def test_no_such_bucket_and_no_server(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="there is no bucket for s3://nowhere/x"):
        add_wheels(S3Store("s3://nowhere/x"), [], replace=False, say=quiet)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(MissingError, match="s3://wheels/torch") as raised:
        S3Store(place).read("catalogue.json")
    assert "AWS_ENDPOINT_URL" in " ".join([raised.value.message, *raised.value.hints])

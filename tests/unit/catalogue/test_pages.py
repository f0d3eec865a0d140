"""The pages that installers read, and what a hostile catalogue cannot do."""

import re
import socket
import struct
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from catalogue_stores import links
from catalogue_wheels import published
from stoker.catalogue.document import decoded, encoded, with_wheels
from stoker.catalogue.entry import variant_name
from stoker.catalogue.pages import groups_of, index_pages
from stoker.catalogue.people_page import people_page
from stoker.catalogue.serving import make_server, prefers_json
from stoker.catalogue.values import PublishedCatalogue
from stoker.model.errors import ArtifactError, MissingError, UsageError
from stoker.outside.web import Web, opened, size_of

WHEEL = published("cu128-sm90", sha256="a" * 64, requires_python=">=3.10,<4")


def pages(*wheels: object) -> dict[str, str]:
    catalogue = with_wheels(PublishedCatalogue(), wheels)  # type: ignore[arg-type]
    made = index_pages(catalogue, groups_of(catalogue.wheels))
    return {path: page.decode() for path, page in made.items() if page is not None}


def test_the_html_index() -> None:
    """PEP 503, with the hash, PEP 658 metadata and the Python that it requires."""
    made = pages(WHEEL)
    (root,) = links(made["cu128-sm90/index.html"])
    assert root == {"href": "torch/"}
    (link,) = links(made["cu128-sm90/torch/index.html"])
    quoted = "torch-2.9.1%2Bcu128.sm90-cp312-cp312-manylinux_2_28_x86_64.whl"
    assert link == {
        "href": f"../../files/{'a' * 64}/{quoted}#sha256={'a' * 64}",
        "data-core-metadata": f"sha256={'1' * 64}",
        "data-dist-info-metadata": f"sha256={'1' * 64}",
        "data-requires-python": ">=3.10,<4",
    }


def test_the_json_index() -> None:
    """PEP 691 and PEP 700."""
    made = pages(WHEEL)
    assert msgspec.json.decode(made["cu128-sm90/index.json"]) == {
        "meta": {"api-version": "1.1"},
        "projects": [{"name": "torch"}],
    }
    page = msgspec.json.decode(made["cu128-sm90/torch/index.json"])
    assert page["versions"] == ["2.9.1+cu128.sm90"]
    (file,) = page["files"]
    assert file["hashes"] == {"sha256": "a" * 64}
    assert file["core-metadata"] == {"sha256": "1" * 64}
    assert (file["size"], file["requires-python"]) == (WHEEL.size_bytes, ">=3.10,<4")
    assert file["upload-time"] == "2026-11-15T13:00:00Z"


def test_a_catalogue_is_read_back() -> None:
    catalogue = with_wheels(PublishedCatalogue(), [WHEEL, published("cpu")])
    assert decoded(encoded(catalogue), "here") == catalogue
    assert decoded(encoded(PublishedCatalogue()), "here") == PublishedCatalogue()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("file", "../../../etc/cron.d/torch-1-py3-none-any.whl"),
        ("file", "torch-1-py3-none-any.whl\n--index-url=http://evil"),
        ("file", "torch-1-py3-none-any.whl'; rm -rf /; '.whl"),
        ("file", "<script>-1-py3-none-any.whl"),
        ("project", "torch; import os"),
        ("project", "--extra-index-url"),
        ("variant", "../files"),
        ("variant", "a/b"),
        ("variant", ""),
        ("sha256", "a" * 63),
        ("version", "1 2"),
        ("requires", ["torch\nname: x"]),
    ],
)
def test_hostile_fields_are_refused(field: str, value: object) -> None:
    whole = msgspec.to_builtins(WHEEL) | {field: value}
    content = msgspec.json.encode({"format": 1, "wheels": [whole]})
    with pytest.raises(ArtifactError, match="not a catalogue of stoker"):
        decoded(content, "there")


@pytest.mark.parametrize("name", ["files", "..", "a/b", "A", "-x", "x" * 121, "<b>", "a b", ""])
def test_names_that_no_variant_has(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a variant"):
        variant_name(name)


def test_hostile_text_in_the_page_for_people() -> None:
    """Text of wheels is data of the page, never part of its markup."""
    attack = "</script><script>alert(1)</script><!-- & 'x'"
    wheel = published("cpu", requires=(attack,), blas=attack)
    page = people_page(with_wheels(PublishedCatalogue(), [wheel])).decode()
    assert "alert(1)</script>" not in page
    assert len(re.findall("<script", page)) == len(
        re.findall("<script", people_page(PublishedCatalogue()).decode())
    )
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert msgspec.json.decode(data[1])["wheels"][0]["blas"] == attack


def test_the_page_for_people_loads_nothing() -> None:
    page = people_page(with_wheels(PublishedCatalogue(), [WHEEL])).decode()
    assert "default-src &#x27;none&#x27;" in page
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
    assert "{{" not in page


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        ("application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1", True),
        ("application/vnd.pypi.simple.v1+html;q=0.2,application/vnd.pypi.simple.v1+json", True),
        ("text/html", False),
        ("application/vnd.pypi.simple.v1+json;q=0, text/html", False),
        ("application/vnd.pypi.simple.v1+json;q=0.1, text/html", False),
        ("", False),
    ],
)
def test_which_form_a_client_prefers(accept: str, json: bool) -> None:
    assert prefers_json(accept) is json


def test_a_server_sends_parts_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file.whl").write_bytes(bytes(range(256)) * 1000)
    (tmp_path.parent / "outside").write_text("secret")
    server = make_server(tmp_path, host="127.0.0.1", port=0, log=lambda _: None)
    Thread(target=server.serve_forever, daemon=True).start()
    url, web = f"http://127.0.0.1:{server.server_port}/file.whl", Web()
    for part in ((0, 1), (255, 600), (255_999, 256_000)):
        with opened(url, web, part=part) as answer:
            assert answer.content.read() == (bytes(range(256)) * 1000)[part[0] : part[1]]
    with opened(url, web) as answer:
        assert len(answer.content.read()) == 256_000
    assert size_of(url, web) == 256_000
    for path, part in (("file.whl", (256_000, 256_001)), ("..%2Foutside", (0, 2))):
        with pytest.raises(MissingError), opened(url.replace("file.whl", path), web, part=part):
            pass
    server.shutdown()
    server.server_close()


def test_an_installer_that_hangs_up_is_no_error_of_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = make_server(tmp_path, host="127.0.0.1", port=0, log=lambda _: None)
    server.daemon_threads = False  # closing it waits for the answer
    with server, socket.create_connection(("127.0.0.1", server.server_port)) as installer:
        installer.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        # The connection ends with a reset instead of an end of file.
        installer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        installer.close()
        server.handle_request()
    assert capsys.readouterr().err == ""

"""`stoker install` of a project with thirty wheels on a server of which none fits: each refusal has
the right reason, the project is built from its source, and the wheel is found again.
"""

import json
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Need, Stoker, missing
from ranged_server import served
from shelf_server import Server
from stoker.model.value import size


@pytest.fixture
def server(need: Need, tmp_path: Path) -> Iterator[Server]:
    need("nvcc")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        missing("the headers of Python are not installed")
    (tmp_path / "server").mkdir()
    with served(tmp_path / "server") as (url, sent):
        yield Server(need, tmp_path, url, sent)


def _imports(python: str) -> bool:
    asked = [python, "-c", "import mill, sys; sys.exit(mill.__file__.startswith(sys.prefix) - 1)"]
    return subprocess.run(asked, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(900)  # a build and three installations, and others may use the machine
def test_none_of_thirty_fits(stoker: Stoker, server: Server, tmp_path: Path) -> None:
    words = ["install", "mill", "--for", "h100", "--python"]
    first = server.machine("first")
    dry = stoker(*words, first, "--dry-run", "--json", **server.environment)
    assert dry.returncode == 0, dry.stderr
    assert not server.wrong(dry.stderr)
    printed = json.loads(dry.stdout)
    (found,), (plan,) = printed["found"], printed["builds"]
    assert found["best"] is None
    received = sum(one["downloaded_bytes"] for one in found["judged"])
    source = (server.shelf.folder / "mill-1.0.tar.gz").stat().st_size
    # The page is read for the wheels, and again for the source.
    assert server.sent.total == received + 2 * server.page + source
    assert f"none of the 30 wheels of mill fits this machine ({size(received)}" in dry.stderr
    assert plan["variant"] == "cu130-sm90"
    assert "mill==1.0 is built from source for cu130-sm90" in dry.stderr

    done = stoker(*words, first, **server.environment)
    assert done.returncode == 0, done.stderr
    assert _imports(first)

    # A second installation on this machine opens no wheel of the server.
    second = server.machine("second")
    server.sent.total = 0
    again = stoker(*words, second, **server.environment)
    assert again.returncode == 0, again.stderr
    assert "native sm_90 code for H100 (9.0)" in again.stderr
    assert "built from source" not in again.stderr
    assert server.sent.total < 3 * server.page
    assert _imports(second)

    # Another machine takes it from the catalogue that this one serves.
    kept = Path(stoker("cache", "wheels", "--folder").stdout.strip())
    third = server.machine("third")
    with served(kept) as (catalogue, sent):
        away = {**server.environment, "STOKER_HOME": str(tmp_path / "away")}
        shared = stoker(*words, third, "--catalogue", catalogue, **away)
        assert shared.returncode == 0, shared.stderr
    (wheel,) = kept.rglob("*.whl")
    assert sent.total >= wheel.stat().st_size
    assert "built from source" not in shared.stderr
    assert _imports(third)

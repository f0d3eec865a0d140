"""Signed catalogues: what a stolen or changed one can do, and that unsigned ones still work."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from catalogue_wheels import make_wheel
from conftest import Stoker, missing
from signed_catalogue import Signed


@pytest.fixture
def ssh_keygen() -> str:
    found = shutil.which("ssh-keygen")  # which has no --version
    return found or missing("ssh-keygen is not installed")


@pytest.fixture
def signed(stoker: Stoker, tmp_path: Path, ssh_keygen: str) -> Signed:
    return Signed(stoker, tmp_path, ssh_keygen)


@pytest.mark.parametrize("reader", ["install INDEX", "install --catalogue"])
def test_every_command_that_reads_a_catalogue_checks_it(
    signed: Signed, tmp_path: Path, reader: str
) -> None:
    place = str(signed.place)
    named = ["mill", "--catalogue", place] if "--" in reader else [place, "mill"]
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": place}
    words = ["install", *named, "--dry-run"]
    assert signed.stoker(*words, cwd=tmp_path, **nowhere).returncode == 0
    signed.put(signed.older)
    done = signed.stoker(*words, cwd=tmp_path, **nowhere)
    assert "the catalogue has number 1, and number 2 was here before" in done.stderr


def test_signed_and_changed(signed: Signed, tmp_path: Path, ssh_keygen: str) -> None:
    def refused() -> str:
        done = signed.select()
        return done.stderr if done.returncode else ""

    assert refused() == ""
    # An older state with its own, right signature.
    signed.put(signed.older)
    assert "the catalogue has number 1, and number 2 was here before" in refused()
    # A changed index: its signature is missing, or is that of another state.
    changed = signed.newer.replace(b'"verified":', b'"verified" :')
    assert changed != signed.newer
    signed.put(changed)
    assert "its signature was removed" in refused()
    right = signed.place / "signatures" / f"{_digest(signed.newer)}.sig"
    shutil.copy(right, right.with_name(f"{_digest(changed)}.sig"))
    assert "the signature of the catalogue is wrong" in refused()
    # A signature by another key.
    signed.put(signed.newer)
    other = signed.made_key(ssh_keygen, tmp_path / "other")
    signed.publish(make_wheel(tmp_path / "third", version="3.0"), key=other)
    assert "the signature of the catalogue is wrong" in refused()
    # A damaged signature, and a catalogue that is gone.
    signed.put(signed.newer)
    right.write_bytes(right.read_bytes()[:80])
    assert "the signature of the catalogue is wrong" in refused()
    (signed.place / "catalogue.json").unlink()
    assert "stoker.toml has a key for it" in refused()


def test_the_newest_version_of_a_signed_catalogue_is_selected_without_a_remark(
    signed: Signed,
) -> None:
    done = signed.select()
    assert json.loads(done.stdout)["wheels"][0]["version"] == "2.0"
    assert "note:" not in done.stderr


def test_a_signed_catalogue_stays_signed(signed: Signed, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "third", version="3.0")
    words = ["publish", str(wheel), "--to", str(signed.place), "--force"]
    done = signed.stoker("catalogue", *words)
    assert done.returncode != 0
    assert "a change must be signed as well" in done.stderr
    pruned = signed.stoker("catalogue", "prune", str(signed.place), "--key", str(signed.key))
    assert pruned.returncode == 0, pruned.stderr
    (left,) = (signed.place / "signatures").iterdir()
    assert left.stem == _digest((signed.place / "catalogue.json").read_bytes())
    assert signed.select().returncode == 0


def test_without_a_key(stoker: Stoker, signed: Signed, tmp_path: Path) -> None:
    words = ["catalogue", "select", str(signed.place), "mill"]
    (tmp_path / "elsewhere").mkdir()
    done = stoker(*words, cwd=tmp_path / "elsewhere", STOKER_HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert "is signed, but stoker.toml has no key" in done.stderr
    place = tmp_path / "plain"
    wheel = make_wheel(tmp_path / "third", version="3.0")
    assert not stoker("catalogue", "publish", str(wheel), "--to", str(place), "--force").returncode
    plain = stoker("catalogue", "select", str(place), "mill")
    assert plain.returncode == 0, plain.stderr
    assert f"{place} is not signed" in plain.stderr


def test_keys_that_are_none(stoker: Stoker, tmp_path: Path) -> None:
    (tmp_path / "stoker.toml").write_text('[install.keys]\n"/srv/wheels" = ["ssh-rsa AAAA"]\n')
    done = stoker("catalogue", "select", "/srv/wheels", cwd=tmp_path)
    assert "'ssh-rsa AAAA' is not a public ed25519 key" in done.stderr


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""A signed catalogue with two states, and the settings that know its key."""

import subprocess
from pathlib import Path

from catalogue_wheels import make_wheel
from conftest import Stoker


class Signed:
    """A catalogue with two states, its key, and a stoker.toml that names the public key."""

    def __init__(self, stoker: Stoker, folder: Path, ssh_keygen: str):
        self.stoker, self.place = stoker, folder / "catalogue"
        self.key = self.made_key(ssh_keygen, folder / "key")
        self.publish(make_wheel(folder / "old", version="1.0"))
        self.older = (self.place / "catalogue.json").read_bytes()
        self.publish(make_wheel(folder / "new", version="2.0"))
        self.newer = (self.place / "catalogue.json").read_bytes()
        self.settings = folder / "stoker.toml"
        public = self.key.with_suffix(".pub").read_text().strip()
        self.settings.write_text(f'[install.keys]\n"{self.place}" = ["{public}"]\n')
        trusted = stoker("plan", "--trust", str(self.settings))
        assert trusted.returncode == 0, trusted.stderr

    @staticmethod
    def made_key(ssh_keygen: str, path: Path) -> Path:
        words = [ssh_keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
        subprocess.run(words, check=True)
        return path

    def publish(self, wheel: Path, key: Path | None = None) -> subprocess.CompletedProcess[str]:
        words = ["publish", str(wheel), "--to", str(self.place), "--variant", "cpu", "--force"]
        done = self.stoker("catalogue", *words, "--key", str(key or self.key))
        assert done.returncode == 0, done.stderr
        return done

    def select(self) -> subprocess.CompletedProcess[str]:
        words = ["select", str(self.place), "mill", "--json"]
        return self.stoker("catalogue", *words, cwd=self.settings.parent)

    def put(self, content: bytes) -> None:
        (self.place / "catalogue.json").write_bytes(content)

"""Signatures of catalogues: ed25519, over `catalogue.json`.

ssh-keygen makes and checks them, because nearly every machine that builds has it, its keys are
those that people keep in agents and hardware tokens, and it needs no further package. The file of
a signature is named by what it signs, and is written before it: a reader finds the one that belongs
to the catalogue that it has read, whatever a publisher does at that moment.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from stoker.model.errors import ArtifactError, MissingError, UsageError
from stoker.model.value import UNDECODABLE, Value, prepared
from stoker.outside import folders, locks, process
from stoker.outside.files import folder_of_process, write_whole

SIGNATURES = "signatures"
_NAMESPACE = "stoker-catalogue"
_IDENTITY = "publisher"
_TIMEOUT_S = 60.0
_ASIDE = ".stoker-sign-"
_SEEN = "catalogues-seen.json"

Sign = Callable[[bytes], bytes]


def signature_path(content: bytes) -> str:
    """Return where the signature of a `catalogue.json` lies below the catalogue."""
    return f"{SIGNATURES}/{hashlib.sha256(content).hexdigest()}.sig"


def signer(key: Path) -> Sign:
    """Return what signs with a private key, or with the agent's key that a public one names."""
    if not key.is_file():
        raise UsageError(f"there is no key {key}", hints=[f"ssh-keygen -t ed25519 -f {key}"])

    def sign(content: bytes) -> bytes:
        with folder_of_process(folders.cache() / "sign", _ASIDE) as work:
            file = work / "content"
            file.write_bytes(content)
            _run(["-Y", "sign", "-f", str(key.absolute()), "-n", _NAMESPACE, str(file)])
            return (work / "content.sig").read_bytes()

    return sign


def check_signature(
    content: bytes, signature: bytes | None, keys: Sequence[str], place: str
) -> None:
    """Raise ArtifactError unless one of these public keys has signed the content."""
    if signature is None:
        raise ArtifactError(
            "the catalogue is not signed, or its signature was removed",
            file=place,
            hints=[
                "stoker.toml has a key for it: do not use it before its publisher has signed it"
            ],
        )
    with folder_of_process(folders.cache() / "sign", _ASIDE) as work:
        allowed, file, signed = work / "allowed", work / "content", work / "content.sig"
        lines = [f'{_IDENTITY} namespaces="{_NAMESPACE}" {key}\n' for key in keys]
        allowed.write_text("".join(lines), encoding="utf-8")
        file.write_bytes(content)
        signed.write_bytes(signature)
        words = ["-Y", "verify", "-f", str(allowed), "-I", _IDENTITY, "-n", _NAMESPACE]
        try:
            _run([*words, "-s", str(signed)], source=file)
        except ArtifactError as error:
            raise ArtifactError(
                "the signature of the catalogue is wrong",
                file=place,
                hints=[
                    "it was changed, or signed by a key that is not in stoker.toml: do not use it",
                    str(error),
                ],
            ) from error


def _run(words: Sequence[str], source: Path | None = None) -> None:
    try:
        done = process.run(["ssh-keygen", *words], timeout=_TIMEOUT_S, source=source)
    except MissingError as error:
        hints = ["install OpenSSH: apt-get install -y openssh-client"]
        raise MissingError("signatures need ssh-keygen", hints=hints) from error
    if not done.ok:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ArtifactError(f"ssh-keygen: {said[-1] if said else 'failed'}")


class _Seen(Value, frozen=True, kw_only=True):
    """The newest serial number that was seen of each catalogue."""

    serials: dict[str, int] = {}


def check_serial(place: str, serial: int) -> None:
    """Raise ArtifactError for a catalogue that is older than one that was seen at this place;
    remember a newer one.
    """
    path = folders.state() / _SEEN
    path.parent.mkdir(parents=True, exist_ok=True)
    with locks.held(path.with_suffix(".lock"), waiting=lambda: None):
        seen = _read(path)
        newest = seen.serials.get(place, 0)
        if serial < newest:
            raise ArtifactError(
                f"the catalogue has number {serial}, and number {newest} was here before",
                file=place,
                hints=[
                    "its server offers an older state, which may lack repairs: ask its publisher",
                    f"if that is right, remove {path}",
                ],
            )
        if serial > newest:
            seen = _Seen(serials={**seen.serials, place: serial})
            write_whole(path, msgspec.json.encode(seen))


def _read(path: Path) -> _Seen:
    try:
        return msgspec.json.decode(path.read_bytes(), type=prepared(_Seen))
    except FileNotFoundError:
        return _Seen()
    except (OSError, *UNDECODABLE) as error:
        hints = [f"remove {path}; then older states of catalogues are not recognized once"]
        raise ArtifactError(f"cannot be read: {error}", file=str(path), hints=hints) from error

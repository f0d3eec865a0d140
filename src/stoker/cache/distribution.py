"""Reads what `--distribute` asks for, and decides whether its machines may be used.

distcc has no authentication: a program that reaches a worker can run commands on it, and a worker
can return any object. sccache-dist has tokens, which everyone can read who sees its
HTTP. Public addresses are therefore refused unless the user trusts them.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from stoker.model.caching import Distributor
from stoker.model.errors import UsageError, unknown
from stoker.model.value import Value

_USUAL_SLOTS = 4  # of a host of distcc that names none
_FORMS = ("none", "sccache-dist:URL", "distcc:HOSTS")
# HOST, HOST:PORT or [HOST]:PORT, with /SLOTS and ,OPTIONS.
_HOST = r"(?:\[(?P<v6>[^\]]+)\]|(?P<name>[^\[\]:/,]+))(?::\d+)?(?:/(?P<slots>\d+))?(?:,.*)?"


class Distribution(Value, frozen=True, kw_only=True):
    """``hosts`` are the machines to check; ``words`` is what the engine itself is told. ``workers``
    are the words of distcc that name one each.
    """

    engine: Distributor
    words: str = ""
    workers: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    slots: int = 0
    problem: str | None = None  # why it cannot be used
    left_out: dict[str, str] = {}  # workers that are not used, and why


def read_distribution(text: str, environment: Mapping[str, str]) -> Distribution:
    """Return the distribution that a text asks for; raise UsageError if it is not one."""
    name, _, words = text.partition(":")
    if name == "icecc":
        hints = [
            "sccache-dist:URL also sends its compiler to the workers, and CUDA",
            "distcc:HOSTS",
        ]
        raise UsageError("--distribute: stoker does not use icecc", hints=hints)
    if name not in set(Distributor):
        raise unknown("value of --distribute", name, _FORMS)
    engine = Distributor(name)
    if engine is Distributor.NONE:
        return Distribution(engine=engine)
    if engine is Distributor.SCCACHE_DIST:
        return _of_sccache(words)
    words = words or environment.get("DISTCC_HOSTS", "")
    if not words.split():
        hints = ["for example --distribute 'distcc:10.0.0.2/8 10.0.0.3/8'"]
        raise UsageError("--distribute distcc names no hosts", hints=hints)
    return _of_distcc(words)


def _of_sccache(url: str) -> Distribution:
    scheme, _, rest = url.partition("://")
    host = re.fullmatch(_HOST, rest.rstrip("/"))
    if url and (scheme not in ("http", "https") or host is None):
        hints = ["for example --distribute sccache-dist:http://10.0.0.2:10600"]
        raise UsageError(f"--distribute: '{url}' is not the address of a scheduler", hints=hints)
    hosts = (host["v6"] or host["name"],) if host and scheme == "http" else ()
    return Distribution(engine=Distributor.SCCACHE_DIST, words=url, hosts=hosts)


def _of_distcc(words: str) -> Distribution:
    hosts, workers, slots = [], [], 0
    for word in words.split():
        if word.startswith("--"):
            continue
        workers.append(word)
        found = re.fullmatch(_HOST, word)
        if found is None:
            hints = ["HOST, HOST/SLOTS or HOST:PORT/SLOTS,lzo, separated by blanks"]
            raise UsageError(f"--distribute: '{word}' is not a host of distcc", hints=hints)
        if "@" not in word:  # ssh authenticates both sides
            hosts.append(found["v6"] or found["name"])
        slots += int(found["slots"] or _USUAL_SLOTS)
    return Distribution(
        engine=Distributor.DISTCC,
        words=words,
        workers=tuple(workers),
        hosts=tuple(hosts),
        slots=slots,
    )


def without_workers(distribution: Distribution, unwanted: Mapping[str, str]) -> Distribution:
    """Return the distribution to the other workers of distcc. ``unwanted`` are those to leave out,
    with the reasons.
    """
    if len(unwanted) == len(distribution.workers):
        why = "no worker has the compiler of this machine"
        return replace(distribution, problem=why, left_out=dict(unwanted))
    words = (word for word in distribution.words.split() if word not in unwanted)
    return replace(_of_distcc(" ".join(words)), left_out=dict(unwanted))


def refuse_public(addresses: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError if a host has a public address. ``addresses`` are by name of the host."""
    import ipaddress  # most runs do not distribute

    for host, found in addresses.items():
        for address in found:
            if ipaddress.ip_address(address.partition("%")[0]).is_global:
                raise UsageError(
                    f"--distribute: {host} has the public address {address}, and distcc "
                    "and sccache-dist over HTTP can be used and read by everyone there",
                    hints=["use a private network, ssh (@HOST) or https", "or add --trust-network"],
                )

"""What --distribute asks for, and which machines it may use."""

import pytest

from stoker.cache.chains import FoundEngine, chain_environment, resolve_chain
from stoker.cache.distribution import read_distribution, refuse_public, without_workers
from stoker.govern.chain import window
from stoker.model.caching import CacheEngine, ChainOptions, Distributor
from stoker.model.errors import MissingError, UsageError

FOUND = {name: FoundEngine(program=f"/usr/bin/{name}") for name in ("ccache", "sccache", "distcc")}


@pytest.mark.parametrize(
    ("text", "hosts", "slots"),
    [
        ("distcc:10.0.0.2", ["10.0.0.2"], 4),
        ("distcc:10.0.0.2/8,lzo worker:3633/2", ["10.0.0.2", "worker"], 10),
        ("distcc:[fd00::2]:3632/3", ["fd00::2"], 3),
        ("distcc:--randomize me@far/2", [], 2),
        ("sccache-dist:http://10.0.0.2:10600", ["10.0.0.2"], 0),
        ("sccache-dist:https://far.example:10600/", [], 0),
        ("sccache-dist", [], 0),
        ("none", [], 0),
    ],
)
def test_hosts_and_their_slots(text: str, hosts: list[str], slots: int) -> None:
    found = read_distribution(text, {})
    assert (list(found.hosts), found.slots) == (hosts, slots)


@pytest.mark.parametrize(
    "text",
    ["distcc", "distcc:", "distcc:/8", "distccc:host", "", "distcc:a/b", "sccache-dist:ftp://a"],
)
def test_what_is_no_distribution_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--distribute"):
        read_distribution(text, {})


@pytest.mark.parametrize("text", ["icecc", "icecc:scheduler"])
def test_icecc_is_refused_with_what_to_use(text: str) -> None:
    with pytest.raises(UsageError, match="does not use icecc") as refused:
        read_distribution(text, {})
    assert [hint.partition(":")[0] for hint in refused.value.hints] == ["sccache-dist", "distcc"]


def test_distccs_own_variable_names_the_hosts() -> None:
    assert read_distribution("distcc", {"DISTCC_HOSTS": "10.0.0.9/3"}).slots == 3


def test_public_addresses_are_refused() -> None:
    private = ("127.0.0.1", "10.0.0.2", "192.168.1.1", "172.16.0.1", "fd00::2", "fe80::1%eth0")
    refuse_public({"worker": private})
    for address in ("8.8.8.8", "2001:4860:4860::8888"):
        with pytest.raises(UsageError, match="public address"):
            refuse_public({"worker": ("10.0.0.2", address)})


def test_the_distributor_starts_what_ccache_lacks_or_everything() -> None:
    distribution = read_distribution("distcc:10.0.0.2/8", {})
    chain = resolve_chain(ChainOptions(), FOUND, {}, distribution=distribution, cpus=64)
    settings = {setting.name: setting.value for setting in chain.settings}
    assert (chain.wrapper, settings["CCACHE_PREFIX"]) == ("/usr/bin/ccache", "/usr/bin/distcc")
    assert settings["DISTCC_HOSTS"].endswith(" --localslots_cpp=64 10.0.0.2/8")
    assert (chain.distributor, chain.slots) == (Distributor.DISTCC, 8)
    assert "C and C++ only" in chain.parts[-1].why
    alone = ChainOptions(cache=CacheEngine.NONE)
    chain = resolve_chain(alone, FOUND, {}, distribution=distribution)
    assert (chain.engine, chain.wrapper) == (CacheEngine.NONE, "/usr/bin/distcc")
    with pytest.raises(UsageError, match="sccache cannot start distcc"):
        resolve_chain(ChainOptions(cache=CacheEngine.SCCACHE), FOUND, {}, distribution=distribution)
    with pytest.raises(MissingError, match="distcc"):
        resolve_chain(ChainOptions(), {}, {}, distribution=distribution)


def test_workers_that_make_other_objects_are_left_out() -> None:
    asked = {"DISTCC_HOSTS": "--randomize one/8,lzo two/4"}
    distribution = read_distribution("distcc", asked)
    assert distribution.workers == ("one/8,lzo", "two/4")
    fewer = without_workers(distribution, {"one/8,lzo": "it differs"})
    assert (fewer.words, fewer.hosts, fewer.slots) == ("--randomize two/4", ("two",), 4)
    alone = ChainOptions(cache=CacheEngine.NONE)
    chain = resolve_chain(alone, FOUND, asked, distribution=fewer)
    assert "one/8,lzo is not used: it differs" in [part.why for part in chain.parts]
    added = chain_environment(chain, asked, folder="/", mapped=False, sccache_socket="")
    assert added["DISTCC_HOSTS"].endswith("--randomize two/4")
    none = without_workers(distribution, dict.fromkeys(distribution.workers, "it differs"))
    chain = resolve_chain(alone, FOUND, asked, distribution=none)
    assert (chain.wrapper, chain.distributor) == (None, Distributor.NONE)


def test_sccache_dist_is_a_part_of_sccache() -> None:
    distribution = read_distribution("sccache-dist:http://10.0.0.2:10600", {})
    chain = resolve_chain(ChainOptions(), FOUND, {}, distribution=distribution)
    assert (chain.engine, chain.wrapper) == (CacheEngine.SCCACHE, "/usr/bin/sccache")
    assert (chain.distributor, chain.scheduler) == (
        Distributor.SCCACHE_DIST,
        "http://10.0.0.2:10600",
    )
    with pytest.raises(UsageError, match="needs --cache sccache"):
        resolve_chain(ChainOptions(cache=CacheEngine.CCACHE), FOUND, {}, distribution=distribution)


def test_the_window_of_jobs_has_room_for_remote_slots() -> None:
    assert window(4, slots=100) == window(4) + 100
    assert window(4, files=64, slots=100) == window(4, files=64)

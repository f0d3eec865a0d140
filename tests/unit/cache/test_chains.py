"""The chain between the build tool and the compiler: one value, with a reason for each part."""

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from conftest import Need
from stoker.cache.ccache import read_ccache
from stoker.cache.chains import (
    FoundEngine,
    NamedHeaders,
    chain_environment,
    resolve_chain,
    with_collector,
    with_threads_of_nvcc,
    without_secrets_in,
)
from stoker.knowledge.caches import remote_variables
from stoker.model.caching import CacheEngine, Chain, ChainOptions
from stoker.model.errors import MissingError, UsageError
from stoker.model.terms import Gc, NvccThreads
from stoker.plan.grammar import parse

CCACHE = {"ccache": FoundEngine(program="/usr/bin/ccache", folder="/cache")}
SCCACHE = {"sccache": FoundEngine(program="/usr/bin/sccache")}


NAMED = NamedHeaders(tree="/tree", digest="digest")


def environment(
    chain: Chain, *, named: NamedHeaders | None = NAMED, assembler: str | None = None, **base: str
) -> dict[str, str]:
    return chain_environment(
        chain,
        base,
        folder="/tree",
        mapped=True,
        sccache_socket="/s",
        named=named,
        assembler=assembler,
    )


def variables(chain: Chain) -> dict[str, str]:
    return {setting.name: setting.value for setting in chain.settings}


def test_auto_is_ccache_if_it_is_installed() -> None:
    chain = resolve_chain(ChainOptions(), CCACHE, {})
    assert (chain.engine, chain.wrapper) == (CacheEngine.CCACHE, "/usr/bin/ccache")
    assert variables(chain) == {"CCACHE_COMPILERCHECK": "content"}
    assert all(setting.why for setting in chain.settings)
    absent = resolve_chain(ChainOptions(), {}, {})
    assert (absent.wrapper, absent.parts[0].why) == (None, "ccache is not installed")


def test_an_engine_that_was_named_and_is_missing_is_an_error() -> None:
    with pytest.raises(MissingError, match="sccache") as refused:
        resolve_chain(ChainOptions(cache=CacheEngine.SCCACHE), CCACHE, {})
    assert refused.value.hints == ("`stoker toolchain install sccache`",)
    with pytest.raises(MissingError, match="buildcache"):
        resolve_chain(ChainOptions(launcher="buildcache"), {}, {})


def test_an_engine_with_a_problem_is_left_out() -> None:
    broken = {"ccache": FoundEngine(program="/usr/bin/ccache", problem="no room")}
    chain = resolve_chain(ChainOptions(cache=CacheEngine.CCACHE), broken, {})
    assert (chain.wrapper, chain.parts[0].why) == (None, "ccache is not used: no room")


def test_what_the_user_has_set_wins() -> None:
    own = {"CMAKE_CXX_COMPILER_LAUNCHER": "/opt/ccache;-x"}
    chain = resolve_chain(ChainOptions(cache=CacheEngine.SCCACHE), SCCACHE, own)
    assert (chain.wrapper, chain.parts[0].what) == (None, "/opt/ccache;-x")
    assert variables(chain) == {"CCACHE_COMPILERCHECK": "content"}
    configured = {"ccache": FoundEngine(program="/c", own=frozenset({"compiler_check"}))}
    assert variables(resolve_chain(ChainOptions(), configured, {})) == {}
    chain = resolve_chain(ChainOptions(), CCACHE, {"CCACHE_COMPILERCHECK": "mtime"})
    assert "CCACHE_COMPILERCHECK" not in variables(chain)
    assert resolve_chain(ChainOptions(), CCACHE, {"CCACHE_DISABLE": "1"}).wrapper is None
    assert "CCACHE_BASEDIR" not in environment(chain, CCACHE_BASEDIR="/mine")


def test_names_of_headers_and_the_assembler_are_in_the_keys_of_ccache() -> None:
    chain = resolve_chain(ChainOptions(), CCACHE, {})
    added = environment(chain, assembler="/usr/bin/as")
    assert added["OBJC_INCLUDE_PATH"] == "digest"
    assert (added["CCACHE_EXTRAFILES"], added["STOKER_ASSEMBLER"]) == ("/usr/bin/as",) * 2
    added = environment(
        chain, assembler="/usr/bin/as", OBJC_INCLUDE_PATH="/mine", CCACHE_EXTRAFILES="/own"
    )
    assert added["OBJC_INCLUDE_PATH"] == "/mine:digest"
    assert added["CCACHE_EXTRAFILES"] == "/own:/usr/bin/as"
    assert added["STOKER_NAMED_TREE"] == "/tree"
    unknown = environment(chain, named=None)
    assert unknown["CCACHE_NODIRECT"] == "1"
    assert not {"OBJC_INCLUDE_PATH", "STOKER_NAMED_TREE"} & unknown.keys()


@pytest.mark.parametrize("cache", [CacheEngine.NONE, CacheEngine.SCCACHE])
def test_without_ccache_the_projects_own_ccache_is_off_too(cache: CacheEngine) -> None:
    found = {**CCACHE, **SCCACHE}
    assert variables(resolve_chain(ChainOptions(cache=cache), found, {}))["CCACHE_DISABLE"] == "1"
    assert "CCACHE_DISABLE" not in variables(resolve_chain(ChainOptions(), found, {}))


def test_a_launcher_stands_behind_ccache_or_alone() -> None:
    found = {**CCACHE, **SCCACHE, "dist": FoundEngine(program="/usr/bin/dist")}
    alone = resolve_chain(ChainOptions(launcher="dist"), found, {})
    assert (alone.engine, alone.wrapper) == (CacheEngine.NONE, "/usr/bin/dist")
    both = resolve_chain(ChainOptions(cache=CacheEngine.CCACHE, launcher="dist"), found, {})
    assert (both.wrapper, variables(both)["CCACHE_PREFIX"]) == ("/usr/bin/ccache", "/usr/bin/dist")
    with pytest.raises(UsageError, match="sccache cannot start dist"):
        resolve_chain(ChainOptions(cache=CacheEngine.SCCACHE, launcher="dist"), found, {})


@pytest.mark.slow
def test_sccache_never_gives_a_tree_the_object_of_another_one(tmp_path: Path, need: Need) -> None:
    """With paths relative to each tree, its own records of headers confuse the trees."""
    program, objects = need("sccache"), []
    chain = Chain(engine=CacheEngine.SCCACHE, wrapper=program)
    for name, members in (("one", "int a, b;"), ("two", "int a, c, b;")):
        tree = tmp_path / name
        (tree / "include").mkdir(parents=True)
        (tree / "include" / "layout.h").write_text(f"struct Layout {{ {members} }};\n")
        offset = "__builtin_offsetof(Layout, b)"
        (tree / "a.cpp").write_text(f'#include "layout.h"\nint offset = {offset};\n')
        base = {**os.environ, "SCCACHE_DIR": str(tmp_path / "cache"), "SCCACHE_DIRECT": "true"}
        socket = str(tmp_path / "socket")
        added = chain_environment(chain, base, folder=str(tree), mapped=True, sccache_socket=socket)
        run = partial(subprocess.run, env={**base, **added}, cwd=tree, capture_output=True)
        run([program, "--start-server"], check=True)
        try:
            words = [program, need("g++"), "-c", "a.cpp", "-Iinclude", "-o", "a.o"]
            run(words, check=True)
        finally:
            run([program, "--stop-server"], check=True)
        objects.append((tree / "a.o").read_bytes())
    assert objects[0] != objects[1]


def test_a_ccache_without_remote_storage_gets_no_remote(tmp_path: Path) -> None:
    """Such as 3.7 of some builder images: it ignores the variable, and every object is lost."""
    old = tmp_path / "ccache"
    old.write_text(f"#!/bin/sh\necho '(default) cache_dir = {tmp_path}'\n")
    old.chmod(0o755)
    found = {"ccache": read_ccache(str(old), os.environ)}
    assert found["ccache"].problem is None
    chain = resolve_chain(ChainOptions(remote="file:///shared"), found, {})
    (part,) = (part for part in chain.parts if part.role == "remote")
    assert part.unusable
    assert "this ccache has no remote storage: 4.7 has" in part.why
    assert not any(setting.name == "CCACHE_REMOTE_STORAGE" for setting in chain.settings)


def test_a_remote_that_does_not_answer_is_left_out_and_its_password_is_hidden() -> None:
    wanted = ChainOptions(cache=CacheEngine.SCCACHE, remote="redis://me:secret@host:1/2")
    chain = resolve_chain(wanted, SCCACHE, {}, remote_problem="it is away")
    assert variables(chain).keys() == {"CCACHE_DISABLE"}
    assert chain.parts[1].why == "redis://***@host:1/2 is not used: it is away"
    used = resolve_chain(wanted, SCCACHE, {})
    assert variables(used)["SCCACHE_REDIS_PASSWORD"] == "secret"
    assert "secret" not in str(without_secrets_in(used))


@pytest.mark.parametrize(
    ("engine", "url", "expected"),
    [
        ("ccache", "redis://h:1", {"CCACHE_REMOTE_STORAGE": "redis://h:1"}),
        ("ccache", "redis://:p@h:1/3", {"CCACHE_REMOTE_STORAGE": "redis://p@h:1/3"}),
        ("ccache", "redis://u:p@h", {"CCACHE_REMOTE_STORAGE": "redis://u:p@h"}),
        ("ccache", "file:///shared/cache", {"CCACHE_REMOTE_STORAGE": "file:///shared/cache"}),
        (
            "sccache",
            "redis://u:p%40@h:1/3",
            {
                "SCCACHE_REDIS_ENDPOINT": "tcp://h:1",
                "SCCACHE_REDIS_USERNAME": "u",
                "SCCACHE_REDIS_PASSWORD": "p@",
                "SCCACHE_REDIS_DB": "3",
            },
        ),
        (
            "sccache",
            "s3://bucket/pre/fix?region=eu-1",
            {
                "SCCACHE_BUCKET": "bucket",
                "SCCACHE_S3_KEY_PREFIX": "pre/fix",
                "SCCACHE_REGION": "eu-1",
            },
        ),
    ],
)
def test_remotes_become_the_variables_of_the_engine(
    engine: str, url: str, expected: dict[str, str]
) -> None:
    assert remote_variables(engine, url) == expected


@pytest.mark.parametrize("url", ["ftp://host", "host:6379", "redis://", "redis://h:port", ""])
def test_an_address_that_no_engine_understands_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--cache-remote"):
        remote_variables("ccache", url)


def test_flags_that_nvcc_reads_from_the_environment_have_a_namespace() -> None:
    """ccache does not look at them. A folder that is only mapped does not count."""
    chain = resolve_chain(ChainOptions(), CCACHE, {})
    spaces = [
        environment(chain, NVCC_APPEND_FLAGS=flags)["CCACHE_NAMESPACE"]
        for flags in (
            "-Xcompiler=-ffile-prefix-map=/one=name",
            "-Xcompiler=-ffile-prefix-map=/two=name",
            "-Xcompiler=-ffile-prefix-map=/two=name --use_fast_math",
        )
    ]
    assert spaces[0] == spaces[1] != spaces[2]
    assert "CCACHE_NAMESPACE" not in environment(chain)
    own = environment(chain, NVCC_APPEND_FLAGS="-O1", CCACHE_NAMESPACE="mine")
    assert own["CCACHE_NAMESPACE"].startswith("mine-nvcc-")
    assert own["STOKER_NVCC_APPEND_FLAGS"] == "-O1"


@pytest.mark.parametrize(
    ("wanted", "what"),
    [(Gc.AUTO, "as memory allows"), (Gc.OFF, "as in the command"), (Gc.ALWAYS, "as memory allows")],
)
def test_the_plan_says_what_happens_to_gcc(wanted: Gc, what: str) -> None:
    (part,) = with_collector(Chain(), wanted).parts
    assert (part.what, wanted.value in part.why) == (what, wanted is not Gc.AUTO)


@pytest.mark.parametrize(
    ("variant", "wanted", "what"),
    [
        ("cu130-sm80-sm90", NvccThreads.AUTO, ["on idle CPUs"]),
        ("cu130-sm80-sm90", NvccThreads.OFF, ["as in the command"]),
        ("cu130-sm90", NvccThreads.AUTO, []),
        ("cpu", NvccThreads.AUTO, []),
    ],
)
def test_the_plan_says_what_happens_to_nvcc(
    variant: str, wanted: NvccThreads, what: list[str]
) -> None:
    chain = with_threads_of_nvcc(Chain(), parse(variant), wanted)
    assert [part.what for part in chain.parts] == what

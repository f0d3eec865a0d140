"""Chooses the parts between the build tool and the compiler: cache, remote, other launchers.

    ninja -> preloaded library -> ccache or sccache -> on a miss: launcher -> compiler

The compiler that a cache starts asks the governor, so a hit never does. Every setting of an engine
has a reason, and one that the user has set stays as it is.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from stoker.cache.distribution import Distribution
from stoker.model.caching import (
    LAUNCHERS,
    NVCC_FLAGS,
    CacheEngine,
    Chain,
    ChainOptions,
    ChainPart,
    Distributor,
)
from stoker.model.errors import MissingError, UsageError
from stoker.model.secrets import hide, redact
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.model.terms import Gc, NvccThreads
from stoker.model.value import Value
from stoker.model.variant import Backend, Variant

_UNASKED = (CacheEngine.AUTO, CacheEngine.PROJECT)
NOT_DISTRIBUTED = Distribution(engine=Distributor.NONE)
_LOCAL_SLOTS = "--localslots=1000 --localslots_cpp={} "
_USUAL_PREPROCESSORS = 8  # that distcc runs at once; those that wait look once a second

_PREFIX_MAP = re.compile(r"(-f\w+-prefix-map=)[^\s=]*=")
# Options of ccache: the name in its configuration, the variable, the value and the reason.
_CCACHE = (
    (
        "compiler_check",
        "CCACHE_COMPILERCHECK",
        "content",
        "another compiler at the same path differs, also if only a program that it starts does",
    ),
)
# ccache takes this variable into the key of its direct mode alone, because it can only change what
# the preprocessor finds. Compilers of C and C++ do not read it.
_DIRECT_KEY = "OBJC_INCLUDE_PATH"
_REPLACED = (
    "CCACHE_EXTRAFILES",
    "CCACHE_NAMESPACE",
    _DIRECT_KEY,
    "DISTCC_HOSTS",
    "STOKER_ASSEMBLER",
    "STOKER_COMPILER_KEY",
    "STOKER_COMPILER_KEYS",
    "STOKER_PYTHON",
    "SCCACHE_DIRECT",
    "STOKER_WRAPPER",
    *(f"STOKER_{name}" for name in NVCC_FLAGS),
)


class FoundEngine(Value, frozen=True, kw_only=True):
    """An engine on this machine. ``own`` are the options that its user has set, by whatever means;
    ``problem`` says why it cannot be used, and ``remote_problem`` why it cannot use a remote.
    ``static``: it is linked statically, so that stoker's library cannot be in it.
    """

    program: str
    folder: str = ""
    own: frozenset[str] = frozenset()
    problem: str | None = None
    remote_problem: str | None = None
    static: bool = False


class NamedHeaders(Value, frozen=True, kw_only=True):
    """A digest of the names of all files below a folder that a compile may include."""

    tree: str  # its path without links
    digest: str


class CompilerKeys(Value, frozen=True, kw_only=True):
    """Where the keys of compilers are kept, and what makes them: a program of this Python."""

    folder: str
    program: str
    python: str


def resolve_chain(
    wanted: ChainOptions,
    found: Mapping[str, FoundEngine],
    environment: Mapping[str, str],
    *,
    remote_problem: str | None = None,
    distribution: Distribution = NOT_DISTRIBUTED,
    cpus: int = 1,
) -> Chain:
    """Return the chain for what is asked for and found. ``found`` is by name of the program.

    An engine that was asked for by name and is missing is an error. One that has a problem is left
    out, and the reason says so.
    """
    if own := [name for name in LAUNCHERS if environment.get(name)]:
        return _of_user(environment, own)
    # A launcher may be a cache itself: another one is used only if it was asked for.
    alone = wanted.launcher and wanted.cache in _UNASKED
    chain = Chain() if alone else _cached(cache_for(wanted, distribution), found, environment)
    if wanted.launcher:
        part = ChainPart(role="launcher", what=wanted.launcher, why="--compiler-launcher")
        chain = _starting(chain, part, found)
    elif distribution.engine is Distributor.SCCACHE_DIST:
        chain = _distributing_cache(chain, distribution)
    elif distribution.engine is not Distributor.NONE:
        chain = _distributed(chain, distribution, found, environment, cpus)
    chain = _with_remote(chain, wanted.remote, found, remote_problem)
    if wanted.reshare and chain.engine is CacheEngine.CCACHE:
        why = "also what the local cache has reaches the checkpoint"
        settings = (*map(_noting_use, chain.settings), _setting("CCACHE_RESHARE", "1", why))
        chain = replace(chain, settings=settings)
    return chain


def _noting_use(setting: Setting) -> Setting:
    """Let ccache note in a folder when each object was used, so that old ones can be deleted."""
    in_folder = setting.name == "CCACHE_REMOTE_STORAGE" and setting.value.startswith("file:")
    return replace(setting, value=f"{setting.value}|update-mtime=true") if in_folder else setting


def cache_for(wanted: ChainOptions, distribution: Distribution) -> CacheEngine:
    """Return the cache to use: sccache-dist is a part of sccache."""
    if distribution.engine is not Distributor.SCCACHE_DIST or wanted.cache is CacheEngine.SCCACHE:
        return wanted.cache
    if wanted.cache in _UNASKED:
        return CacheEngine.SCCACHE
    raise UsageError("--distribute sccache-dist needs --cache sccache")


def _distributing_cache(chain: Chain, distribution: Distribution) -> Chain:
    why = "--distribute; sccache sends what it lacks, also CUDA"
    where = distribution.words or "as sccache is configured"
    part = ChainPart(role="distributor", what=where, why=why)
    return replace(
        chain,
        distributor=distribution.engine,
        scheduler=distribution.words,
        parts=(*chain.parts, part),
    )


def _of_user(environment: Mapping[str, str], names: list[str]) -> Chain:
    """Return the chain of launchers that the user has set in CMake's variables."""
    value = environment[names[0]]
    engine = next(
        (e for e in (CacheEngine.CCACHE, CacheEngine.SCCACHE) if e in re.split(r"[/;]", value)),
        None,
    )
    part = ChainPart(role="launcher", what=value, why=f"{names[0]} is set in the environment")
    settings = (
        tuple(_ccache_settings(frozenset(), environment)) if engine is CacheEngine.CCACHE else ()
    )
    return Chain(engine=engine or CacheEngine.NONE, parts=(part,), settings=settings)


def _starting(chain: Chain, part: ChainPart, found: Mapping[str, FoundEngine]) -> Chain:
    """Have a program start every compile, or those that ccache lacks."""
    if chain.engine is CacheEngine.SCCACHE:
        hints = ["--cache ccache, or --cache none"]
        raise UsageError(f"sccache cannot start {part.what}", hints=hints)
    path = _required(part.what, found).program
    parts = (*chain.parts, replace(part, what=path))
    if chain.wrapper is None:
        return replace(chain, wrapper=path, parts=parts)
    if found[chain.engine].static:
        hints = ["use the ccache of your system, or --cache none"]
        text = f"this ccache cannot start {part.what}: it is linked statically"
        raise UsageError(text, hints=hints)
    prefix = _setting("CCACHE_PREFIX", path, "ccache starts it with each compile that it lacks")
    return replace(chain, parts=parts, settings=(*chain.settings, prefix))


def _distributed(
    chain: Chain,
    distribution: Distribution,
    found: Mapping[str, FoundEngine],
    environment: Mapping[str, str],
    cpus: int,
) -> Chain:
    """Return the chain with distcc. It bounds the preprocessors that run here, and the governor the
    compiles that run here.
    """
    engine = distribution.engine
    unused = {**distribution.left_out}
    if _required(engine, found) and distribution.problem:
        unused[engine] = distribution.problem
    without = (
        ChainPart(role="distributor", what="none", why=f"{name} is not used: {why}", unusable=True)
        for name, why in unused.items()
    )
    chain = replace(chain, parts=(*chain.parts, *without))
    if distribution.problem:
        return chain
    why = "--distribute; it has no authentication, so its network must be trusted"
    chain = _starting(chain, ChainPart(role="distributor", what=engine, why=why), found)
    cuda = ChainPart(role="CUDA", what="here", why=f"{engine} distributes C and C++ only")
    chain = replace(chain, distributor=engine, slots=distribution.slots, parts=(*chain.parts, cuda))
    if distribution.words == environment.get("DISTCC_HOSTS"):
        return chain
    slots = _LOCAL_SLOTS.format(max(_USUAL_PREPROCESSORS, cpus))
    own = "" if "--localslots" in distribution.words else slots
    why = "the workers; compiles that run here wait for the governor, not for distcc"
    hosts = _setting("DISTCC_HOSTS", f"{own}{distribution.words}", why)
    return replace(chain, settings=(*chain.settings, hosts))


def _cached(
    cache: CacheEngine, found: Mapping[str, FoundEngine], environment: Mapping[str, str]
) -> Chain:
    if cache is CacheEngine.PROJECT:
        return _without("only one that the project starts, unless --cache asks for one")
    if cache is CacheEngine.NONE:
        return replace(_without("--cache none"), settings=(_no_ccache(),))
    engine = CacheEngine.CCACHE if cache is CacheEngine.AUTO else cache
    if cache is CacheEngine.AUTO and engine not in found:
        return _without("ccache is not installed")
    if engine is CacheEngine.CCACHE and environment.get("CCACHE_DISABLE"):
        return _without("CCACHE_DISABLE is set in the environment")
    here = _required(engine, found)
    if here.problem:
        return _without(f"{engine} is not used: {here.problem}", unusable=True)
    why = "it is installed" if cache is CacheEngine.AUTO else f"--cache {cache}"
    part = ChainPart(role="cache", what=here.program, why=why)
    ccache = engine is CacheEngine.CCACHE
    settings = _ccache_settings(here.own, environment) if ccache else (_no_ccache(),)
    return Chain(
        engine=engine,
        wrapper=here.program,
        folder=here.folder,
        parts=(part,),
        settings=tuple(settings),
    )


def _without(why: str, *, unusable: bool = False) -> Chain:
    return Chain(parts=(ChainPart(role="cache", what="none", why=why, unusable=unusable),))


def _no_ccache() -> Setting:
    """Projects such as PyTorch put ccache before their compilers by themselves."""
    return _setting("CCACHE_DISABLE", "1", "also for a ccache that the project starts itself")


def _required(program: str, found: Mapping[str, FoundEngine]) -> FoundEngine:
    if program not in found:
        raise missing_program(program)
    return found[program]


def missing_program(program: str) -> MissingError:
    """Return the error for a cache or launcher that is not installed."""
    from stoker.knowledge.toolchains import kinds  # most runs do not need it

    command = (
        f"`stoker toolchain install {program}`" if program in kinds() else f"install {program}"
    )
    return MissingError(f"there is no program '{program}'", hints=[command])


def _ccache_settings(own: frozenset[str], environment: Mapping[str, str]) -> Iterator[Setting]:
    for option, variable, value, why in _CCACHE:
        if option not in own and variable not in environment:
            yield _setting(variable, value, why)


def _with_remote(
    chain: Chain, url: str | None, found: Mapping[str, FoundEngine], problem: str | None
) -> Chain:
    if url is None or chain.engine is CacheEngine.NONE or chain.wrapper is None:
        return chain
    from stoker.knowledge.caches import remote_variables  # most runs have no remote

    shown = redact(url)
    variables = remote_variables(chain.engine, url)
    if "remote_storage" in found[chain.engine].own:
        part = ChainPart(role="remote", what="none", why=f"{chain.engine} has a remote of its own")
        return replace(chain, parts=(*chain.parts, part))
    if problem := problem or found[chain.engine].remote_problem:
        part = ChainPart(
            role="remote", what="none", why=f"{shown} is not used: {problem}", unusable=True
        )
        return replace(chain, parts=(*chain.parts, part))
    part = ChainPart(role="remote", what=shown, why="--cache-remote")
    settings = (_setting(name, value, "the remote") for name, value in variables.items())
    return replace(chain, parts=(*chain.parts, part), settings=(*chain.settings, *settings))


def _setting(name: str, value: str, why: str) -> Setting:
    origin = Origin(kind=OriginKind.DEFAULT)
    return Setting(place=SettingPlace.ENVIRONMENT, name=name, value=value, origin=origin, why=why)


def with_collector(chain: Chain, wanted: Gc) -> Chain:
    """Return the chain with what the governor does with gcc's garbage collector."""
    what, why = "as in the command", "--gc off"
    if wanted is not Gc.OFF:
        what = "as memory allows"
        why = "more often if memory is short, less often if it is idle, for the same objects"
    if wanted is Gc.ALWAYS:
        why = "--gc always: also for steps whose debug information or the like records it"
    part = ChainPart(role="garbage collector of gcc", what=what, why=why)
    return replace(chain, parts=(*chain.parts, part))


def with_threads_of_nvcc(chain: Chain, variant: Variant, wanted: NvccThreads) -> Chain:
    """Return the chain with what the governor does with nvcc for several GPU targets, if any."""
    if variant.backend is not Backend.CUDA or len(variant.gpus) < 2:
        return chain
    what, why = "as in the command", "--nvcc-threads off"
    if wanted is NvccThreads.AUTO:
        what = "on idle CPUs"
        why = f"up to {len(variant.gpus)} for each of the last kernels, as far as memory allows"
    part = ChainPart(role="threads of nvcc", what=what, why=why)
    return replace(chain, parts=(*chain.parts, part))


def without_secrets_in(chain: Chain) -> Chain:
    """Return the chain as it may be shown: addresses and variables without passwords."""
    settings = (replace(s, value=hide(s.name, s.value)) for s in chain.settings)
    return replace(chain, settings=tuple(settings))


def chain_environment(
    chain: Chain,
    base: Mapping[str, str],
    *,
    folder: str,
    mapped: bool,
    sccache_socket: str,
    named: NamedHeaders | None = None,
    assembler: str | None = None,
    keys: CompilerKeys | None = None,
) -> dict[str, str]:
    """Return the variables that a governed command gets for the chain.

    Paths below ``folder`` are the same for the cache wherever the folder is. ``mapped`` says that
    compilers record other names for folders, so that their objects do not depend on them at all.
    Without the names of headers, ccache compares what the preprocessor prints, and so it does for
    sources that are not in their tree. ``assembler`` is the program on the PATH. Compilers are
    compared by their ``keys``, unless the user has said how ccache compares them.
    """
    added = {setting.name: setting.value for setting in chain.settings}
    if keys and chain.engine is not CacheEngine.NONE:
        added["STOKER_COMPILER_KEYS"] = keys.folder
        added["STOKER_COMPILER_KEY"] = keys.program
        added["STOKER_PYTHON"] = keys.python
    if assembler and chain.engine is not CacheEngine.NONE:
        added["STOKER_ASSEMBLER"] = assembler
    if chain.wrapper:
        added["STOKER_WRAPPER"] = chain.wrapper
        added |= {f"STOKER_{name}": base[name] for name in NVCC_FLAGS if name in base}
    if chain.engine is CacheEngine.CCACHE:
        added["CCACHE_BASEDIR"] = folder
        if named:
            own = base.get(_DIRECT_KEY)
            added[_DIRECT_KEY] = f"{own}:{named.digest}" if own else named.digest
            added["STOKER_NAMED_TREE"] = named.tree
        else:
            added["CCACHE_NODIRECT"] = "1"
        if assembler:
            own = base.get("CCACHE_EXTRAFILES")
            added["CCACHE_EXTRAFILES"] = f"{own}:{assembler}" if own else assembler
        if mapped:
            added["CCACHE_NOHASHDIR"] = "1"
        if flags := " ".join(base.get(name, "") for name in NVCC_FLAGS).strip():
            added["CCACHE_NAMESPACE"] = _namespace(base.get("CCACHE_NAMESPACE", ""), flags)
    if chain.engine is CacheEngine.SCCACHE and chain.wrapper:
        added["SCCACHE_SERVER_UDS"] = sccache_socket
        added["SCCACHE_BASEDIRS"] = folder
        # Its records of headers would find those of another tree: mozilla/sccache issue 2863.
        added["SCCACHE_DIRECT"] = "false"
        added["SCCACHE_IGNORE_SERVER_IO_ERROR"] = "1"
    # The namespace and the hosts are made from the user's own; the records would be wrong.
    return {name: value for name, value in added.items() if name not in base or name in _REPLACED}


def _namespace(own: str, flags: str) -> str:
    """Return a namespace for flags that nvcc reads from the environment, which ccache ignores.

    The folders in prefix maps are left out, because they do not change the object.
    """
    plain = " ".join(_PREFIX_MAP.sub(r"\1", flags).split())
    import hashlib  # loads OpenSSL, which other runs can do without

    digest = hashlib.sha256(plain.encode()).hexdigest()[:12]
    return f"{own}-nvcc-{digest}".lstrip("-")

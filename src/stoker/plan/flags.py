"""Compiler and linker flags of a variant, the same for every project."""

from collections.abc import Iterator

from stoker.knowledge.hardware import cpu_flags
from stoker.model.errors import UsageError
from stoker.model.plan import Origin, Sanitizer, Setting
from stoker.plan.subject import Subject, environment

_SANITIZER_FLAGS = {
    Sanitizer.ADDRESS: "-fsanitize=address",
    Sanitizer.UNDEFINED: "-fsanitize=undefined",
    Sanitizer.THREAD: "-fsanitize=thread",
}


def compiler_flags(subject: Subject, *, sanitizer: Sanitizer | None) -> Iterator[Setting]:
    """Yield CFLAGS, CXXFLAGS and LDFLAGS. The user's own flags come first."""
    sanitize = (_SANITIZER_FLAGS[sanitizer],) if sanitizer else ()
    origin = subject.origin("cpu" if subject.variant.cpu else "sanitizer")
    compile_flags = (*_cpu_flags(subject), *sanitize)
    for name in ("CFLAGS", "CXXFLAGS") if compile_flags else ():
        yield _joined(subject, name, compile_flags, origin)
    if sanitize:
        yield _joined(subject, "LDFLAGS", sanitize, subject.origin("sanitizer"))


def _joined(subject: Subject, name: str, flags: tuple[str, ...], origin: Origin) -> Setting:
    before = subject.exported.get(name, "").strip()
    added = [flag for flag in flags if flag not in before.split()]
    why = f"your own {name} come first" if before else ""
    return environment(name, " ".join(filter(None, [before, *added])), origin, why)


def _cpu_flags(subject: Subject) -> tuple[str, ...]:
    cpu = subject.variant.cpu
    if cpu is None:
        return ()
    compiler, version = subject.compiler
    flags = cpu_flags(cpu, compiler, version)
    if flags is None and not subject.here:
        flags = cpu_flags(cpu, "gcc", "99")  # the compiler of another machine is unknown
    if flags is None:
        raise UsageError(
            f"{compiler} {version} cannot make code for {cpu}",
            hints=["name a lower CPU level, or set CC and CXX to a newer compiler"],
        )
    return flags

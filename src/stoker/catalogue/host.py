"""The machine that wheels are chosen for: this one, or the one that words describe."""

import os

import msgspec

from stoker.catalogue.values import Host, HostGpu
from stoker.knowledge.cpus import cpu_family, cpu_offers
from stoker.knowledge.gpus import gpus, squeeze
from stoker.knowledge.manylinux import policies
from stoker.machine.python import Interpreter, Probe, ask_interpreter
from stoker.machine.system import read_machine
from stoker.model.errors import UsageError
from stoker.model.machine import Machine
from stoker.model.value import minor_release
from stoker.model.variant import GpuTarget, Platform
from stoker.plan.grammar import parse, parts_beside

_TIMEOUT_S = 60.0
HOST_PARTS = ("backend", "gpus", "cpu", "python", "platform")  # of a variant that is a machine


def read_host(python: str, wished: str | None = None) -> Host:
    asked = ask_interpreter(python, Probe(environment=os.environ, timeout_s=_TIMEOUT_S))
    return host_of(asked, wished)


def host_of(asked: Interpreter, wished: str | None) -> Host:
    """Return this machine with an interpreter, or the machine that words describe."""
    machine = read_machine(())
    host = Host(
        os=machine.os.system,
        cpu_family=machine.cpu.family,
        cpu=machine.cpu.microarchitecture,
        cpu_features=machine.cpu.features,
        python=asked.version,
        free_threaded=asked.free_threaded,
        gpus=tuple(HostGpu(name=gpu.name, capability=gpu.capability) for gpu in machine.gpus),
        driver=next((gpu.driver for gpu in machine.gpus if gpu.is_nvidias), None),
        libc=machine.os.libc,
    )
    return host if wished is None else wished_host(host, wished, machine)


def wished_host(host: Host, text: str, machine: Machine | None = None) -> Host:
    """Return the host that words describe: ``l40s``, ``h100 avx512``, ``cpu``, ``sm80
    linux-x86_64``. The rest is as on this machine.
    """
    variant = parse(text, machine)
    if other := parts_beside(variant, HOST_PARTS):
        raise UsageError(
            f"'{text}' gives a {' and a '.join(other)}, which describes a build and not a machine",
            hints=["name the GPU, the CPU, the platform and the Python: 'h100 linux-x86_64 py312'"],
        )
    named = tuple(_named_gpu(text, target) for target in variant.gpus)
    host = msgspec.structs.replace(host, gpus=named, driver=None)
    family = cpu_family(variant.cpu) if variant.cpu else host.cpu_family
    platform = variant.platform or Platform(os=host.os, cpu=family)
    if (platform.os, platform.cpu) != (host.os, host.cpu_family):
        newest = policies()[-1].name.removeprefix("manylinux_").replace("_", ".")
        host = msgspec.structs.replace(
            host,
            os=platform.os,
            cpu_family=platform.cpu,
            cpu=platform.cpu,
            cpu_features=(),
            libc=f"glibc {newest}",
        )
    if variant.cpu:
        features = tuple(sorted(cpu_offers(variant.cpu)))
        host = msgspec.structs.replace(host, cpu=variant.cpu, cpu_features=features)
    if variant.python:
        free = variant.python.endswith("t")
        python = variant.python.rstrip("t")
        host = msgspec.structs.replace(host, python=python, free_threaded=free)
    return host


def check_installable(host: Host, python: str) -> None:
    """Raise UsageError if packages for ``host`` cannot be installed for that interpreter."""
    here = read_host(python)
    wanted, own = (Platform(os=one.os, cpu=one.cpu_family) for one in (host, here))
    if wanted != own:
        raise UsageError(
            f"packages for {wanted} cannot be installed on this machine, which is {own}",
            hints=[
                "run the command on the other machine, or in a container for it",
                "`pip download --platform` and `stoker slim WHEEL --for GPU` need no such machine",
            ],
        )
    asked, found = (
        minor_release(one.python) + ("t" if one.free_threaded else "") for one in (host, here)
    )
    if asked != found:
        raise UsageError(
            f"packages for Python {asked} cannot be installed for {python} (Python {found})",
            hints=[f"name the interpreter: --python {asked}"],
        )


def _named_gpu(text: str, target: GpuTarget) -> HostGpu:
    """Return the GPU with the name that the user gave it, if the words contain one."""
    capability = ".".join(map(str, target.capability)) if "." in target.arch else target.arch
    names = gpus()[capability].names if capability in gpus() else ()
    said = [name for name in names if squeeze(name) in squeeze(text)]
    name = max(said, key=len, default=f"sm_{capability.replace('.', '')}")
    return HostGpu(name=name, capability=capability)

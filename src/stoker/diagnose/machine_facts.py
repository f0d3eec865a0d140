"""Facts of this machine: its system, its limits, its libraries.

Each is read when a fix needs it. A fact that is not known has no value, and a fix that needs it is
not offered.
"""

import resource
from pathlib import Path

from stoker.diagnose.about import About, Facts
from stoker.diagnose.installing import system_commands
from stoker.model.shell import ShellScript, Template, fill
from stoker.model.value import size

FACTS = Facts()

_JOB_MEMORY = 4 * 1024**3  # enough for most compiles of PyTorch and its extensions


@FACTS.text("machine.system", "the name of the operating system")
def _system(about: About) -> str | None:
    return about.here.system.pretty


@FACTS.text("machine.conda", "conda's program, if an environment of conda is active")
def _conda(about: About) -> str | None:
    return about.here.conda


@FACTS.command("machine.apt", "apt-get with what it needs to run as root, if the system has it")
def _apt(about: About) -> ShellScript | None:
    if about.here.manager != "apt":
        return None
    return fill(Template("{sudo}apt-get"), {"sudo": about.here.sudo})


@FACTS.text("machine.sudo", "sudo, if we need it and have it")
def _sudo(about: About) -> str | None:
    return about.here.sudo.strip() or None


@FACTS.text("machine.jobs", "the jobs that memory and CPUs allow")
def _jobs(_: About) -> str | None:
    from stoker.machine.cpu import read_usable
    from stoker.machine.file_tree import FileTree
    from stoker.machine.memory import read_memory

    tree = FileTree()
    jobs = read_memory(tree).limit.limit // _JOB_MEMORY
    return str(max(1, min(read_usable(tree), jobs)))


@FACTS.text("machine.address_space", "the limit of `ulimit -v`, if there is one")
def _address_space(_: About) -> str | None:
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else size(soft)


@FACTS.text("machine.open_files", "the most open files that a shell may ask for")
def _open_files(about: About) -> str | None:
    return _hard(resource.RLIMIT_NOFILE, about)


@FACTS.text("machine.processes", "the most processes that a shell may ask for")
def _processes(about: About) -> str | None:
    return _hard(resource.RLIMIT_NPROC, about)


def _hard(limit: int, about: About) -> str | None:
    soft, hard = resource.getrlimit(limit)
    if hard == resource.RLIM_INFINITY:
        return "unlimited"
    return str(hard) if hard > soft or about.here.is_root else None


@FACTS.text("machine.gpu", "the GPU of this machine")
def _gpu(_: About) -> str | None:
    from stoker.machine.gpus import nvidia_gpus

    return next((gpu.name for gpu in nvidia_gpus(lambda _: None)), None)


@FACTS.text(
    "machine.libstdcxx", "the folder of a C++ runtime that has the symbols that are missing"
)
def _libstdcxx(about: About) -> str | None:
    needed = [word.encode() for word in about.words("needed")]
    prefix = about.here.environment.get("CONDA_PREFIX")
    of_system = ["/usr/lib64", *map(str, Path("/usr/lib").glob("*-linux-gnu"))]
    places = [
        *([f"{prefix}/lib"] if prefix else []),
        *([] if about.words("system") else of_system),  # that of the system is the one too old
    ]
    for place in places:
        try:
            content = Path(place, "libstdc++.so.6").read_bytes()
        except OSError:
            continue
        if needed and all(word in content for word in needed):
            return place
    return None


@FACTS.text(
    "machine.shared_folder", "the folder of this machine that has the missing shared library"
)
def _shared_folder(about: About) -> str | None:
    places = ("/usr/local/lib", "/usr/local/lib64", "/opt/*/lib", "/usr/lib/*-linux-gnu/*")
    for name in about.words("shared"):
        for place in places if "/" not in name else ():
            if found := next(Path("/").glob(f"{place[1:]}/{name}"), None):
                return str(found.parent)
    return None


@FACTS.command("machine.ldconfig", "the command that makes the loader read its folders again")
def _ldconfig(about: About) -> ShellScript | None:
    if not (about.here.is_root or about.here.sudo):
        return None
    return fill(Template("{sudo}ldconfig"), {"sudo": about.here.sudo})


@FACTS.text("machine.certificates", "the file with the certificates that the system trusts")
def _certificates(_: About) -> str | None:
    return next((path for path in _BUNDLES if Path(path).is_file()), None)


@FACTS.command("machine.install_certificates", "the command that installs them, if missing")
def _install_certificates(about: About) -> ShellScript | None:
    if _certificates(about) or about.here.manager is None:
        return None
    return system_commands(["ca-certificates"], about.here, about.here.manager)


_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

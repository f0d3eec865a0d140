"""Facts of this machine: limits, compilers, CUDA and disks.

Each is read when a fix needs it. A fact that is not known has no value, and a fix that needs it is
not offered.
"""

import math
import os
import re
import resource
import shutil
from collections.abc import Sequence
from pathlib import Path

from stoker.diagnose.about import About, Facts
from stoker.diagnose.installing import system_commands
from stoker.diagnose.lines import compiled
from stoker.diagnose.sieve import Line
from stoker.model.shell import ShellScript, Template, fill
from stoker.model.value import Value, size

FACTS = Facts()

_FIRST_TOOLCHAIN = 13  # the first CUDA that `stoker toolchain` installs
_USED_GCC = r"/(?:c\+\+|gcc/[\w-]+)/(\d{1,2})/|gcc version (\d{1,2})\.|GNU (\d{1,2})\."
_USUAL_STACK = 8 * 1024**2  # what Linux gives a process
_SCRIPT = 4096  # bytes of a script that starts nvcc
_JOB_MEMORY = 4 * 1024**3  # enough for most compiles of PyTorch and its extensions


@FACTS.text("machine.system", "the name of the operating system")
def _system(about: About) -> str | None:
    return about.here.system.pretty


@FACTS.text("machine.root", "root, if we are not root and there is no sudo")
def _root(about: About) -> str | None:
    return None if about.here.is_root or about.here.sudo else "root"


@FACTS.text("machine.conda", "conda's program, if an environment of conda is active")
def _conda(about: About) -> str | None:
    return about.here.conda


@FACTS.text("machine.rustup", "rustup, if it is installed")
def _rustup(about: About) -> str | None:
    return about.here.which("rustup")


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


@FACTS.text("machine.stack", "the limit of `ulimit -H -s`, if it is below the usual one")
def _stack(_: About) -> str | None:
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]  # gcc lifts the soft limit by itself
    return size(hard) if hard != resource.RLIM_INFINITY and hard < _USUAL_STACK else None


@FACTS.text("machine.file_size", "the limit of `ulimit -f`, if there is one")
def _file_size(_: About) -> str | None:
    soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
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


@FACTS.text("machine.cuda_home", "the folder of the CUDA toolkit that a build would take")
def _cuda_home(about: About) -> str | None:
    nvcc = _nvcc(about)
    return str(nvcc.parent.parent) if nvcc else None


def _used_cuda(about: About) -> str | None:
    """Return the version of the toolkit that the log names, else of that of this machine."""
    return _named(_USED_CUDA, about) or _cuda(about)


@FACTS.text("machine.cuda", "the version of that toolkit")
def _cuda(about: About) -> str | None:
    home = _cuda_home(about)
    return _toolkit_version(Path(home)) if home else None


@FACTS.text(
    "machine.cuda_found",
    "the folder of a CUDA toolkit, not that of CUDA_HOME, that torch and the log allow",
)
def _cuda_found(about: About) -> str | None:
    nvcc = _nvcc(about, with_variables=False)
    home = nvcc.parent.parent if nvcc else None
    return str(home) if home and _allowed(_toolkit_version(home), about) else None


def _allowed(cuda: str | None, about: About) -> bool:
    """Return whether a CUDA version has the major version of torch, or of the toolkit that the log
    names, and is not older than what the log asks for.
    """
    used = _torch_cuda(about) or _named(_USED_CUDA, about)
    if cuda is None or (used and _major(used) != _major(cuda)):
        return cuda is None
    return all(float(cuda) >= float(word) for word in about.words("least") if _is_version(word))


_is_version = re.compile(r"\d{1,2}(?:\.\d{1,2})?").fullmatch


@FACTS.text(
    "machine.cuda_wanted",
    "the CUDA version of torch, else the newest with the major version that the log names, if it "
    "can be installed",
)
def _cuda_wanted(about: About) -> str | None:
    from stoker.knowledge.hardware import cuda_releases

    named = _named(_USED_CUDA, about)
    fitting = [one for one in cuda_releases() if not named or _major(one) == _major(named)]
    return _installable(_torch_cuda(about) or (fitting[-1] if fitting else None))


@FACTS.text(
    "machine.cuda_same",
    "the CUDA version of torch, else of the toolkit that the build has used, if it can be "
    "installed: it replaces a toolkit that lacks a part",
)
def _cuda_same(about: About) -> str | None:
    from stoker.knowledge.hardware import cuda_releases

    version = _torch_cuda(about) or _used_cuda(about)
    return _installable(version) if version in cuda_releases() else _cuda_wanted(about)


def _installable(version: str | None) -> str | None:
    return version if version and _major(version) >= _FIRST_TOOLCHAIN else None


def _major(version: str) -> int:
    return int(version.partition(".")[0])


@FACTS.text(
    "machine.cuda_include",
    "the folder of the headers of the CUDA toolkit, if it has what is missing",
)
def _cuda_include(about: About) -> str | None:
    folder = _below_toolkit(about, "include/cuda_runtime.h", "targets/*/include/cuda_runtime.h")
    # Since CUDA 13, nvcc alone finds Thrust, CUB and libcu++ by itself: they are in cccl.
    folders = [Path(folder), Path(folder, "cccl")] if folder else []
    headers = about.words("header")
    return next((str(one) for one in folders if all((one / h).exists() for h in headers)), None)


@FACTS.text("machine.cuda_libraries", "the folder of the libraries of the CUDA toolkit")
def _cuda_libraries(about: About) -> str | None:
    return _below_toolkit(
        about, "lib64/libcudart.so", "targets/*/lib/libcudart.so", "lib/libcudart.so"
    )


@FACTS.text("machine.cuda_stubs", "the folder with the stub of the driver library")
def _cuda_stubs(about: About) -> str | None:
    return _below_toolkit(about, "lib64/stubs/libcuda.so", "targets/*/lib/stubs/libcuda.so")


def _below_toolkit(about: About, *patterns: str) -> str | None:
    home = _cuda_home(about) if _allowed(_cuda(about), about) else None
    found = (path for pattern in patterns for path in Path(home or "/-").glob(pattern))
    return next((str(path.parent) for path in found), None)


@FACTS.text("machine.nvcc_gcc", "the newest gcc that this nvcc accepts and the system has")
def _nvcc_gcc(about: About) -> str | None:
    from stoker.knowledge.hardware import cuda_releases

    release = cuda_releases().get(_used_cuda(about) or "")
    limits = [int(word) for word in about.groups.get("newest", ()) if word.isdecimal()]
    limits += [number - 1 for number in _used_gccs(about)]  # nvcc has refused this one
    most = min([*limits, *([release.gcc_max] if release else [])], default=None)
    fitting = [number for number in _gccs(about) if most is not None and number <= most]
    return str(max(fitting)) if fitting else None


@FACTS.text(
    "machine.newer_gcc", "the first gcc, at least what the log asks for, that the system has"
)
def _newer_gcc(about: About) -> str | None:
    needed = _needed_gcc(about)
    fitting = [number for number in _gccs(about) if needed and number >= needed]
    return str(min(fitting)) if fitting else None


@FACTS.text("machine.needed_gcc", "the version of gcc that the log asks for")
def _needed_gcc_text(about: About) -> str | None:
    needed = _needed_gcc(about)
    return str(needed) if needed else None


@FACTS.command(
    "machine.install_newer_gcc", "the command that installs the newer gcc, if it is missing"
)
def _install_newer_gcc(about: About) -> ShellScript | None:
    return _install_gcc(_newer_gcc(about), about)


@FACTS.command(
    "machine.install_nvcc_gcc", "the command that installs the gcc for nvcc, if it is missing"
)
def _install_nvcc_gcc(about: About) -> ShellScript | None:
    return _install_gcc(_nvcc_gcc(about), about)


@FACTS.text("machine.newest_gcc", "the newest gcc that the system has")
def _newest_gcc(about: About) -> str | None:
    return str(max(_gccs(about))) if _gccs(about) else None


@FACTS.command("machine.install_newest_gcc", "the command that installs it, if it is missing")
def _install_newest_gcc(about: About) -> ShellScript | None:
    return _install_gcc(_newest_gcc(about), about)


@FACTS.text("machine.other_gcc", "an older release of gcc than the one that was used")
def _other_gcc(about: About) -> str | None:
    newest = next(iter(_used_gccs(about)), max(_gccs(about), default=0))
    older = [number for number in _gccs(about) if number < newest]
    return str(max(older)) if older else None


@FACTS.command("machine.install_other_gcc", "the command that installs it, if it is missing")
def _install_other_gcc(about: About) -> ShellScript | None:
    return _install_gcc(_other_gcc(about), about)


def _used_gccs(about: About) -> list[int]:
    """Return the version of gcc whose files the log names, if it names any."""
    named = _named(_USED_GCC, about)
    return [int(named)] if named else []


def _install_gcc(version: str | None, about: About) -> ShellScript | None:
    if version is None or about.here.which(f"g++-{version}"):
        return None
    return system_commands([f"g++-{version}"], about.here, "apt")


def _gccs(about: About) -> set[int]:
    """Return the versions of g++ that are installed, or that the system has as packages."""
    from stoker.knowledge.packages import gcc_versions

    folders = about.here.environment.get("PATH", "").split(":")
    names = [path.name for folder in folders if folder for path in Path(folder).glob("g++-[0-9]*")]
    installed = {int(name[4:]) for name in names if name[4:].isdecimal()}
    return installed | set(gcc_versions(about.here.system) if about.here.manager == "apt" else ())


def _needed_gcc(about: About) -> int | None:
    from stoker.knowledge.compilers import first_gcc

    asked = [int(match[0]) for word in about.words("needed") if (match := re.match(r"\d+", word))]
    for group in ("standard", "header"):
        asked += [number for word in about.words(group) if (number := first_gcc(group, word))]
    return max(asked, default=None)


@FACTS.text(
    "machine.arch_list", "the architectures of the GPUs here, or of the build, that nvcc makes"
)
def _arch_list(about: About) -> str | None:
    from stoker.knowledge.hardware import cuda_releases
    from stoker.machine.gpus import nvidia_gpus

    release = cuda_releases().get(_used_cuda(about) or "")
    makes = release.archs if release else ()
    present = sorted({gpu.capability for gpu in nvidia_gpus(lambda _: None)})
    asked = sorted(_asked_archs(about), key=float)
    refused = _refused_archs(about)
    present = [arch for arch in present if arch not in refused]
    chosen = [arch for arch in present or asked if not makes or arch in makes]
    return ";".join(chosen) or _any_arch(makes, about)


def _any_arch(makes: Sequence[str], about: About) -> str | None:
    """Return the first architecture that nvcc makes and the log allows, with its PTX, which newer
    GPUs translate: that runs everywhere.
    """
    allowed = _allowed_archs(makes, about)
    return f"{min(allowed, key=float)}+PTX" if allowed else None


def _allowed_archs(makes: Sequence[str], about: About) -> list[str]:
    refused = _refused_archs(about)
    plain = [arch for arch in makes if re.fullmatch(r"[\d.]+", arch) and arch not in refused]
    return [arch for arch in plain if float(arch) * 10 >= _least_arch(about)]


def _refused_archs(about: About) -> set[str]:
    """Return the architectures that the log says are not supported. Where 9.0a is refused, 9.0 may
    do.
    """
    named = [word for word in about.words("arch") if not re.fullmatch(r"\d+\.\d[af]", word)]
    numbers = [re.sub(r"\D", "", word) for word in named]
    return {f"{number[:-1]}.{number[-1]}" for number in numbers if len(number) > 1}


@FACTS.text("machine.arch_list_ptx", "the newest that nvcc makes, with PTX for newer GPUs")
def _arch_list_ptx(about: About) -> str | None:
    from stoker.knowledge.hardware import cuda_releases

    release = cuda_releases().get(_used_cuda(about) or "")
    known = _allowed_archs(release.archs if release else sorted(_asked_archs(about)), about)
    too_new = min(map(float, _refused_archs(about)), default=math.inf)
    allowed = [arch for arch in known if float(arch) < too_new]
    return f"{max(allowed, key=float)}+PTX" if allowed else None


def _least_arch(about: About) -> int:
    words = about.words("needed")
    return max((int(word[3:]) for word in words if re.fullmatch(r"sm_\d+", word)), default=0)


def _asked_archs(about: About) -> set[str]:
    """Return the architectures of the compile commands, without one that the log refuses."""
    numbers = {
        number
        for line in about.lines
        for number in re.findall(r"(?:compute|sm)_(\d{2,3})\b", line.text)
    }
    refused = {word: re.sub(r"\D", "", word) for word in about.words("arch")}
    # Where 9.0a is refused, 9.0 may do.
    plain = {number for word, number in refused.items() if re.fullmatch(r"\d+\.\d[af]", word)}
    numbers = numbers - set(refused.values()) | plain
    least = _least_arch(about)
    return {f"{number[:-1]}.{number[-1]}" for number in numbers if int(number) >= least}


@FACTS.text(
    "machine.arch_of_the_chip",
    "the target with the features of one chip, such as 9.0a, where the log refuses 9.0",
)
def _arch_of_the_chip(about: About) -> str | None:
    from stoker.knowledge.hardware import cuda_releases

    release = cuda_releases().get(_used_cuda(about) or "")
    numbers = sorted({word.removeprefix("sm_") for word in about.words("plain")}, key=int)
    archs = [f"{number[:-1]}.{number[-1]}a" for number in numbers]
    return ";".join(arch for arch in archs if release is None or arch in release.archs) or None


@FACTS.text("machine.arch_numbers", "the same as numbers, for CMake")
def _arch_numbers(about: About) -> str | None:
    archs = _arch_list(about)
    return archs.removesuffix("+PTX").replace(".", "") if archs else None


@FACTS.text("machine.arch_number", "the first of them")
def _arch_number(about: About) -> str | None:
    return (_arch_numbers(about) or "").partition(";")[0] or None


@FACTS.text("machine.gpu", "the GPU of this machine")
def _gpu(_: About) -> str | None:
    from stoker.machine.gpus import nvidia_gpus

    return next((gpu.name for gpu in nvidia_gpus(lambda _: None)), None)


@FACTS.text("machine.torch_cuda", "the CUDA version of the torch that the interpreter has")
def _torch_cuda(about: About) -> str | None:
    if named := _named(_TORCH_CUDA, about):
        return named if "." in named else f"{named[:-1]}.{named[-1]}"
    if about.own_python is None:
        return None
    prefix = Path(about.own_python).parent.parent
    for file in prefix.glob("lib/python3*/site-packages/torch/version.py"):
        if match := re.search(r"^cuda[^=]*= '([\d.]+)'", file.read_text(), re.MULTILINE):
            return match[1]
    return None


def _named(pattern: str, about: About) -> str | None:
    """Return the first group that a pattern finds in the log."""
    found = about.first(pattern)
    return next(filter(None, found.groups()), None) if found else None


@FACTS.text(
    "machine.cudnn_package", "the package of cuDNN 9 for the CUDA of torch or of this machine"
)
def _cudnn_package(about: About) -> str | None:
    cuda = _torch_cuda(about) or _used_cuda(about)
    return f"nvidia-cudnn-cu{_major(cuda)}" if cuda and _major(cuda) >= 12 else None


_TORCH_CUDA = (
    r"used to compile PyTorch \((\d+\.\d+)\)|torch\.version\.cuda\D{1,12}(\d+\.\d+)"
    r"|\btorch\b[^\n]{0,40}\d\+cu(\d{2,3})\b"
)
_USED_CUDA = (
    r"[/\\]cuda-(\d{1,2}\.\d)[/\\]|[/\\]CUDA[/\\]v(\d{1,2}\.\d)"
    r"|Cuda compilation tools, release (\d+\.\d+)|\bNVIDIA (\d{1,2}\.\d{1,2})\.\d"
)
_NVCCS = ("/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc")


def _nvcc(about: About, *, with_variables: bool = True) -> Path | None:
    environment = about.here.environment
    names = ("CUDA_HOME", "CUDA_PATH") if with_variables else ()
    homes = [environment.get(name) for name in names]
    candidates = [f"{home}/bin/nvcc" for home in homes if home]
    if on_path := shutil.which("nvcc", path=environment.get("PATH", "")):
        candidates.append(on_path)
    candidates += [
        *_NVCCS,
        *map(str, sorted(Path("/usr/local").glob("cuda-*/bin/nvcc"), reverse=True)),
    ]
    return next((found for path in candidates if (found := _real_nvcc(Path(path)))), None)


def _real_nvcc(path: Path) -> Path | None:
    """Return the nvcc inside its toolkit: what is on the PATH may be a script that starts it."""
    if not os.access(path, os.X_OK):
        return None
    real = path.resolve()
    try:
        with real.open("rb") as stream:
            begin = stream.read(_SCRIPT)
    except OSError:
        return None
    if begin.startswith(b"#!"):
        started = re.search(rb"(/[\w./+-]{1,200}/bin/nvcc)\b", begin)
        real = Path(started[1].decode()).resolve() if started else real
    return real if os.access(real, os.X_OK) else None


def _toolkit_version(home: Path) -> str | None:
    """Return the version that a toolkit states in a file, which is quicker than asking nvcc."""
    for name in ("version.json", "include/cuda_runtime_api.h"):
        try:
            text = (home / name).read_text(errors="replace")
        except OSError:
            continue
        if match := re.search(r'"cuda" : \{[^}]*"version" : "(\d+\.\d+)', text):
            return match[1]
        if match := re.search(r"#define CUDART_VERSION\s+(\d+)", text):
            number = int(match[1])
            return f"{number // 1000}.{number % 1000 // 10}"
    return None


@FACTS.text(
    "machine.libstdcxx", "the folder of a C++ runtime that has the symbols that are missing"
)
def _libstdcxx(about: About) -> str | None:
    needed = [word.encode() for word in about.words("needed")]
    prefix = about.here.environment.get("CONDA_PREFIX")
    places = [
        *([f"{prefix}/lib"] if prefix else []),
        "/usr/lib64",
        *map(str, Path("/usr/lib").glob("*-linux-gnu")),
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


@FACTS.command("machine.set_watches", "the command that raises the limits of watched files")
def _set_watches(about: About) -> ShellScript | None:
    if not (about.here.is_root or about.here.sudo):
        return None
    return fill(_SET_WATCHES, {"sudo": about.here.sudo})


_SET_WATCHES = Template(
    "{sudo}sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=1024"
)


_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


# -- disks -----------------------------------------------------------------------------------------


_NEARLY_FULL = 0.01  # of a file system
_FEW = 2 * 1024**3  # bytes that are not few, even on a large one
_SMALL = 64 * 1024**2  # bytes: less than this is little on any file system
_PROGRESS = r"\[ {0,2}(\d{1,3})%\]|\[(\d{1,6})/(\d{1,6})\]"


@FACTS.text("machine.shortage", "that a file system is full, and how much is free of how much")
def _full(about: About) -> str | None:
    disk = _full_disk(about)
    if disk is None:
        return None
    if not disk.has_files:
        return f"{disk.where} is full (it can hold no more files)"
    # What a compiler could not write completely is deleted by now.
    how = "is full" if disk.free < disk.total / 2 else "is too small"
    return f"{disk.where} {how} ({size(disk.free)} of {size(disk.total)} free)"


@FACTS.text("machine.full_is_temporary", "the folder for temporary files, if only that is full")
def _full_is_temporary(about: About) -> str | None:
    disk = _full_disk(about)
    build = _disk(Path(about.run.folder)) if about.run.folder else None
    temporary = about.here.environment.get("TMPDIR", "/tmp")
    held = _disk(Path(temporary))
    is_only = (
        disk and held and disk.where == held.where and (build is None or build.where != disk.where)
    )
    return temporary if is_only else None


@FACTS.text("machine.room", "a folder on the file system with most room")
def _room(about: About) -> str | None:
    full = _full_disk(about)
    home = about.here.environment.get("HOME", "")
    places = [about.run.folder, "/var/tmp", home, "/tmp", *_mounted()]
    disks = [
        (disk.free, path)
        for path in places
        if path and (disk := _writable(path)) and (not full or disk.where != full.where)
    ]
    found = max(disks, default=None)
    return f"{found[1].rstrip('/')}/stoker-tmp" if found and found[0] > _SMALL else None


@FACTS.text("machine.missing_temporary", "the folder that TMPDIR names, if it does not exist")
def _missing_temporary(about: About) -> str | None:
    folder = about.here.environment.get("TMPDIR", "")
    return folder if folder and not Path(folder).exists() else None


@FACTS.text(
    "machine.noexec", "the folder for temporary files or of the run, if it forbids programs"
)
def _noexec(about: About) -> str | None:
    places = (about.run.folder, about.here.environment.get("TMPDIR", "/tmp"))
    there = (place for place in places if place and Path(place).is_dir())
    return next((place for place in there if os.statvfs(place).f_flag & os.ST_NOEXEC), None)


@FACTS.text("run.missing", "about how much space the rest of the build needs")
def _missing(about: About) -> str | None:
    """Estimate it by what the build folder holds after the part that is done."""
    folder, done = about.run.folder, _share_done(about.lines)
    if not folder or not done:
        return None
    from stoker.outside.files import size_on_disk

    rest = size_on_disk(Path(folder)) * (1 - done) / done
    return size(rest) if rest > 1024 else None


@FACTS.text(
    "machine.frees", "what could be removed from the full file system, with sizes and commands"
)
def _frees(about: About) -> str | None:
    from stoker.outside.files import size_on_disk

    full, home = _full_disk(about), Path(about.here.environment.get("HOME", "/"))
    if full is None:
        return None
    known = {
        home / ".cache/pip": "pip cache purge",
        home / ".cache/uv": "uv cache clean",
        home / ".cache/ccache": "ccache --clear",
        home / ".ccache": "ccache --clear",
        home / ".cache/stoker": "stoker clean --all",
        Path("/var/cache/apt/archives"): "apt-get clean",
    }
    there = [(path, command) for path, command in known.items() if path.is_dir()]
    on_it = [
        (path, command)
        for path, command in there
        if (disk := _disk(path)) and disk.where == full.where
    ]
    sizes = sorted(((size_on_disk(path), path, command) for path, command in on_it), reverse=True)
    worth = [f"`{command}` frees {size(much)}" for much, _, command in sizes if much > 1024**2]
    return ", ".join(worth) or None


class _Disk(Value, frozen=True, kw_only=True):
    """A file system; ``has_files`` is false where it can hold no more files, whatever is free."""

    where: str
    free: int
    total: int
    has_files: bool = True

    @property
    def is_full(self) -> bool:
        """Whether so little is free that a build may have failed; compilers remove what they could
        not write completely.
        """
        few = self.free < _SMALL or self.free < min(_NEARLY_FULL * self.total, _FEW)
        return few or not self.has_files


def _full_disk(about: About) -> _Disk | None:
    """Return the file system that is full: of the files that the log names, of the build folder or
    of the folder for temporary files.
    """
    named = [word for group in ("path", "file") for word in about.groups.get(group, ())]
    base = about.run.folder or "."
    places = [str(Path(base, word)) for word in named]
    places += [about.run.folder, about.here.environment.get("TMPDIR", "/tmp")]
    disks = [disk for place in places if place and (disk := _disk(Path(place)))]
    return next((disk for disk in disks if disk.is_full), None)


def _disk(path: Path) -> _Disk | None:
    existing = next((one for one in (path, *path.parents) if one.exists()), None)
    if existing is None:
        return None
    existing = existing.resolve()
    mount = next(one for one in (existing, *existing.parents) if one.is_mount())
    state = os.statvfs(existing)
    return _Disk(
        where=str(mount),
        free=state.f_bavail * state.f_frsize,
        total=state.f_blocks * state.f_frsize,
        has_files=state.f_files == 0 or state.f_favail > 0,
    )


def _writable(path: str) -> _Disk | None:
    return _disk(Path(path)) if os.access(path, os.W_OK | os.X_OK) else None


def _mounted() -> list[str]:
    from stoker.machine.file_tree import FileTree, parse_mounts

    mounts = parse_mounts(FileTree().text("/proc/self/mountinfo") or "")
    return [mount.point for mount in mounts if mount.filesystem in ("ext4", "xfs", "btrfs", "zfs")]


def _share_done(lines: Sequence[Line]) -> float | None:
    for line in reversed(lines):
        if match := compiled(_PROGRESS).search(line.text):
            percent, step, total = match.groups()
            share = int(percent) / 100 if percent else int(step) / max(1, int(total))
            return share if 0 < share < 1 else None
    return None

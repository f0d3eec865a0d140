"""Writes the record of a compiler for launcher/keys.c, and then starts a command.

    python -I -S compiler_key.py RECORD COMPILER PROGRAM WORD...

A key is a digest of all programs and libraries that decide about a compiler's objects. The
preloaded library starts this program in place of the first compile by a compiler, and again after
one of these files has changed. It runs within builds, so it prints nothing.
"""

import fcntl
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

_TIMEOUT_S = 60
_PT_INTERP = 3
_LENGTH = 40  # characters of a key, as in keys.h
_GCC_PROGRAMS = ("cc1", "cc1plus", "cc1obj", "cc1objplus", "as")
_NVCC_PROGRAMS = ("cicc", "cudafe++", "fatbinary", "ptxas")
# Libraries that make code, or compute constants for it. A library of the system, such as libc, does
# not decide about objects.
_LIBRARIES = re.compile(r"\s(?:lib(?:LLVM|clang|isl|mpc|mpfr|gmp)\S*) => (.+) \(0x[0-9a-f]+\)$")
# Variables that change what a compiler answers; LD_LIBRARY_PATH is part of a record's name.
_LEFT_OUT = (
    *("LD_PRELOAD", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH", "CCC_OVERRIDE_OPTIONS"),
    *("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"),
)


def main(record: str, compiler: str, program: str, *words: str) -> None:
    try:
        write_record(record, compiler)
    except (OSError, ValueError, subprocess.SubprocessError):
        pass  # the compile is not cached
    sought = os.environ.get("STOKER_KEYS_SOUGHT", "")
    os.environ["STOKER_KEYS_SOUGHT"] = f"{sought}{record}:"
    os.execv(program, words)


def write_record(record: str, compiler: str) -> None:
    """Write the key of a compiler and the files of which it is made, unless it was just written.
    A file that has the name of the key contains nothing else: ccache compares files.
    """
    os.makedirs(os.path.dirname(record), exist_ok=True)
    with open(f"{record}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first compiles of a build are many
        if _is_current(record, compiler):
            return
        files = [compiler, *_files_of(compiler)]
        lines = [os.path.realpath(compiler), *(_line(path) for path in files)]
        key = hashlib.sha256()
        for path in filter(os.path.isfile, files):
            with open(path, "rb") as stream:
                key.update(hashlib.file_digest(stream, "sha256").digest())
        if lines[1:] != [_line(path) for path in files]:
            raise ValueError("a file was changed meanwhile")
        name = key.hexdigest()[:_LENGTH]
        _write(os.path.join(os.path.dirname(record), name), name)
        _write(record, "\n".join([name, *lines, ""]))


def _write(file: str, text: str) -> None:
    descriptor, new = tempfile.mkstemp(dir=os.path.dirname(file))
    with open(descriptor, "w", errors="surrogateescape") as stream:
        stream.write(text)
    os.rename(new, file)


def _is_current(record: str, compiler: str) -> bool:
    try:
        with open(record, errors="surrogateescape") as stream:
            _, real, *lines = stream.read().splitlines()
        return real == os.path.realpath(compiler) and all(
            line == _line(line.split(" ", 4)[-1]) for line in lines
        )
    except (OSError, ValueError):
        return False


def _line(path: str) -> str:
    """Return the line of a file or folder, also of one that is missing and would be read."""
    if "\n" in path:
        raise ValueError("a record has a line for each file")
    if not os.path.exists(path):
        return f"0 0 0 0 {path}"
    found = os.stat(path)
    times = f"{found.st_mtime_ns} {found.st_ctime_ns}"
    return f"{found.st_size} {found.st_ino} {times} {path}"


def _files_of(compiler: str) -> list[str]:
    """Return the programs that a compiler starts, and the libraries that these and it load."""
    of_nvcc = os.path.basename(os.path.realpath(compiler)).startswith("nvcc")
    programs = _of_nvcc(compiler) if of_nvcc else _of_gcc(compiler)
    libraries = [path for program in (compiler, *programs) for path in _libraries_of(program)]
    return list(dict.fromkeys([*programs, *libraries]))


def _of_gcc(compiler: str) -> list[str]:
    """Return the programs of gcc that have a path of their own, its specs, and the folders where a
    program, specs or a configuration would be found if it were added. clang has no programs: its
    driver compiles. The assembler on the PATH is compared by its name (STOKER_ASSEMBLER).
    """
    found = [_answer([compiler, f"-print-prog-name={name}"]).strip() for name in _GCC_PROGRAMS]
    found.append(_answer([compiler, "-print-file-name=specs"]).strip())
    usual = shutil.which("as")
    files = [
        path for path in found if path != usual and os.path.isabs(path) and os.path.isfile(path)
    ]
    told = _answer([compiler, "-print-search-dirs"])
    searched = re.search(r"^programs: =?(.*)$", told, re.MULTILINE)
    folders = dict.fromkeys(map(os.path.realpath, searched[1].split(":") if searched else ()))
    version = _answer([compiler, "--version"])
    configurations = re.findall(r"^Configuration file: (/.*)$", version, re.MULTILINE)
    return [*files, *folders, *(path for each in configurations for path in _included(each))]


def _included(configuration: str) -> list[str]:
    """Return a file of options of clang and those that it names with "@"."""
    found = [configuration]
    for path in found:  # it grows
        with open(path, errors="surrogateescape") as stream:
            named = re.findall(r"(?:^|\s)@(\S+)", stream.read())
        inner = (os.path.join(os.path.dirname(path), name) for name in named)
        found += [file for file in inner if file not in found]
    return found


def _of_nvcc(compiler: str) -> list[str]:
    """Return the programs of nvcc, its library of device functions and its file of options."""
    command = [compiler, "--dryrun", "-x", "cu", "-c", os.devnull, "-o", os.devnull]
    told = dict(re.findall(r"^#\$ (\w+)=(.*)$", _answer(command), re.MULTILINE))
    found = [shutil.which(name, path=told.get("PATH", "")) for name in _NVCC_PROGRAMS]
    if not all(found):
        raise ValueError("nvcc does not say what it starts")
    library = os.path.join(told.get("NVVMIR_LIBRARY_DIR", ""), "libdevice.10.bc")
    profile = os.path.join(os.path.dirname(os.path.realpath(compiler)), "nvcc.profile")
    return [path for path in (*found, library, profile) if path]


def _libraries_of(program: str) -> list[str]:
    """Return the libraries that decide about objects. Without a dynamic loader, a program would not
    list its libraries but do its work.
    """
    if not os.path.isfile(program) or not _has_loader(program):
        return []
    told = _answer([program], LD_TRACE_LOADED_OBJECTS="1")
    found = (_LIBRARIES.search(line) for line in told.splitlines())
    return [os.path.abspath(line[1]) for line in found if line]


def _has_loader(program: str) -> bool:
    with open(program, "rb") as stream:
        header = stream.read(64)
        if not header.startswith(b"\x7fELF\x02"):
            return False  # a script, or a program of 32 bits
        (at,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        stream.seek(at)
        table = stream.read(size * count)
    return any(struct.unpack_from("<I", table, size * n)[0] == _PT_INTERP for n in range(count))


def _answer(command: list[str], **more: str) -> str:
    """Return what a compiler says, in an environment that does not change it."""
    environment = {name: text for name, text in os.environ.items() if name not in _LEFT_OUT}
    done = subprocess.run(
        command,
        env=environment | more,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_S,
        check=False,
        text=True,
        errors="surrogateescape",
    )
    return done.stdout


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Runs the build of a tree up to its compilers, which are recorders.

    driver.py cmake CMAKE GENERATOR SOURCE BUILD -D...   configures, and lists ninja's commands
    driver.py setup.py [ARGUMENT...]                 runs setup.py bdist_wheel
    driver.py backend NAME PATH... -- KEY=VALUE...   calls the PEP 517 back end

It runs in the tree. ``sitecustomize`` has been imported before it.
"""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys


def _cmake(words):
    program, generator, source, build, *options = words
    command = [program, "-S", source, "-B", build]
    command += ["-G", generator] if generator else []
    status = subprocess.call([*command, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options])
    graph = os.path.join(build, "build.ninja")
    if os.path.exists(graph) and shutil.which("ninja"):
        with open(os.path.join(build, "compdb.json"), "wb") as stream:
            subprocess.call(["ninja", "-C", build, "-t", "compdb"], stdout=stream)
    _note_find_cuda(build)
    return status


def _note_find_cuda(build):
    """Note the compiles of FindCUDA, which is deprecated: each is a script of CMake that starts
    nvcc, so ninja does not list its flags. CMake writes them even where it writes no graph, because
    a library to link is missing.
    """
    names = ("CUDA_NVCC_EXECUTABLE", "source_file", "generated_file_internal")
    notes = []
    for folder, _, files in sorted(os.walk(os.path.join(build, "CMakeFiles"))):
        for file in sorted(files):
            if "_generated_" not in file or not file.endswith(".cmake"):
                continue
            with open(os.path.join(folder, file), errors="replace") as stream:
                said = dict(re.findall(r"^set\((\w+) ([^#\n]*)\) #", stream.read(), re.MULTILINE))
            nvcc, source, output = (said.get(name, "").strip('"') for name in names)
            if not nvcc or not source:
                continue
            lists = (said.get(n, "") for n in ("format_flag", "nvcc_flags", "CUDA_NVCC_FLAGS"))
            flags = re.findall(r'[^\s;"]+', " ".join(lists))
            words = [nvcc, source, "-o", output, *flags]
            notes.append({"note": "compile", "words": words, "folder": build})
    with open(os.environ["STOKER_NOTES"] + "/compiles", "a") as stream:
        stream.writelines(json.dumps(note) + "\n" for note in notes)


def _setup(words):
    """Run setup.py as pip does. If it ends before a compiler starts, compile alone: a wheel needs
    files that compiling does not, such as those of a missing submodule.
    """
    for mark, command in (("--first", "bdist_wheel"), ("--only", "build_ext")):
        if words[:1] == [mark]:
            return _run_setup(command, words[1:])
    status = subprocess.call([sys.executable, __file__, "setup.py", "--first", *words])
    if status and not os.path.exists(os.environ["STOKER_NOTES"] + "/compiles"):
        subprocess.call([sys.executable, __file__, "setup.py", "--only", *words])
    return status


def _run_setup(command, words):
    import sitecustomize  # type: ignore[import-not-found]

    sys.argv = sitecustomize.recorded_words(["setup.py", command, *words])
    sys.path.insert(0, os.getcwd())
    path = os.path.abspath("setup.py")
    with open(path, "rb") as stream:
        code = compile(stream.read().replace(b"\r\n", b"\n"), path, "exec")
    exec(code, {"__name__": "__main__", "__file__": path})
    return 0


def _backend(words):
    at = words.index("--")
    name, *paths = words[:at]
    sys.path[:0] = [os.path.abspath(path) for path in paths]
    settings = dict(word.split("=", 1) for word in words[at + 1 :])
    module, _, attribute = name.partition(":")
    backend = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        backend = getattr(backend, part)
    out = os.path.join(os.environ["TMPDIR"], "wheel")
    os.makedirs(out, exist_ok=True)
    backend.build_wheel(out, settings)
    return 0


if __name__ == "__main__":
    way, *rest = sys.argv[1:]
    # So that what setup.py imports sees no module of ours.
    sys.modules["stoker_driver"] = sys.modules.pop("__main__")
    raise SystemExit({"cmake": _cmake, "setup.py": _setup, "backend": _backend}[way](rest))

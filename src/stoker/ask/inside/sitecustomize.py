"""Imported by every Python in the room: notes which variables and words the build looks at, and
pretends the GPU that the plan is for.

STOKER_PRETENDED is a JSON object: ``cuda`` (the version that torch is to have), ``capability``,
``name`` and ``visible`` of the GPU. Without it, torch is as it is.
"""

import json
import os
import sys

_TREE = os.environ.get("STOKER_ASKED_TREE", "").split(":")[0]
_NOTES = os.environ.get("STOKER_NOTES")
_PRETENDED = json.loads(os.environ.get("STOKER_PRETENDED", "null"))
_LENT = json.loads(os.environ.get("STOKER_LENT", "{}"))
_OWN = ("STOKER_", "LD_PRELOAD")
_LIBRARIES = ("/torch/utils/cpp_extension.py", "/scikit_build_core/", "/skbuild/")
_PASSED_OVER = ("os.py", "_collections_abc.py", "sitecustomize.py", "<frozen os>", "argparse.py")
# CMake then passes over what it would fetch, where the project does not forbid that.
_DISCONNECTED = os.environ.get("STOKER_DISCONNECTED") and "-DFETCHCONTENT_FULLY_DISCONNECTED=ON"
_noted: set = set()  # type: ignore[type-arg]


def _note(kind, **fields):
    line = json.dumps({"note": kind, **fields}) + "\n"
    if _NOTES and line not in _noted:
        _noted.add(line)
        file = os.open(_NOTES + "/python", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, line.encode("ascii"))
        os.close(file)


def _place():
    """Return the file and line of the tree, or of a library that builds, which called us."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_code.co_filename.endswith(_PASSED_OVER):
        frame = frame.f_back
    if frame.f_code.co_filename.startswith("<frozen"):
        return None
    file = os.path.abspath(frame.f_code.co_filename)
    if file.startswith(_TREE + "/"):
        return f"{file[len(_TREE) + 1 :]}:{frame.f_lineno}"
    if any(part in file for part in _LIBRARIES):
        return f"{file.rpartition('site-packages/')[2]}:{frame.f_lineno}"
    return None


class _Environment(os._Environ):  # type: ignore[type-arg]
    """os.environ, which notes who reads what. A copy of everything is no reading."""

    __slots__ = ()
    copied_at = None

    def __getitem__(self, name):
        self._read(name)
        return super().__getitem__(name)

    def __contains__(self, name):
        self._read(name)
        return super().__contains__(name)

    def get(self, name, default=None):
        self._read(name, default)
        try:
            return super().__getitem__(name)
        except KeyError:
            return default

    def __iter__(self):
        type(self).copied_at = _place()
        return super().__iter__()

    def copy(self):
        return {name: super(_Environment, self).__getitem__(name) for name in super().__iter__()}

    def _read(self, name, default=None):
        if not isinstance(name, str) or name.startswith(_OWN):
            return
        place = _place()
        if place and place != self.copied_at:
            try:
                value = super().__getitem__(name)
            except KeyError:
                value = None
            given = None if default is None else str(default)
            _note("variable", name=name, value=value, where=place, default=given)


def _record_environment():
    os.environ.__class__ = _Environment


class _Words(list):  # type: ignore[type-arg]
    """sys.argv, which notes the words that are looked for."""

    def __contains__(self, word):
        self._look(word)
        return super().__contains__(word)

    def index(self, word, *limits):
        self._look(word)
        return super().index(word, *limits)

    def _look(self, word):
        place = _place()
        if place and isinstance(word, str) and word.startswith("-"):
            _note("word", name=word, where=place)


class _Word(str):
    """A word of sys.argv, which notes what it is compared with."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        place = _place()
        if place and isinstance(other, str) and other.startswith("--"):
            _note("word", name=str(other), where=place)
        return str.__eq__(self, other)


def recorded_words(words):
    return _Words(map(_Word, words))


def _record_parsers():
    import argparse

    usual = argparse.ArgumentParser.add_argument

    def add_argument(self, *names, **how):
        place = _place()
        if place:
            for name in names:
                if isinstance(name, str) and name.startswith("--"):
                    _note("word", name=name, where=place)
        return usual(self, *names, **how)

    argparse.ArgumentParser.add_argument = add_argument  # type: ignore[method-assign]


def _replaced(words):
    """Return why a program is not started, if it is not."""
    words = [os.fsdecode(word) for word in words]
    name = os.path.basename(words[0]) if words else ""
    if name.startswith("python") and words[1:3] == ["-m", "pip"]:
        name, words = "pip", words[2:]
    if name in ("pip", "pip3", "uv", "conda") and {"install", "uninstall"} & set(words):
        return "install"
    if name == "git" and {"submodule", "clone", "fetch", "pull"} & set(words[1:3]):
        return "fetch"
    if name in ("cmake", "cmake3") and {"--build", "--install"} & set(words):
        return "build"
    if name in ("make", "gmake", "ninja") and os.path.exists(_folder(words) + "/CMakeCache.txt"):
        return "build" if not {"-t", "--version"} & set(words) else None
    return None


def _configures(words):
    """Tell whether a command is CMake's, and no script or tool of it."""
    name = os.path.basename(os.fsdecode(words[0])) if words else ""
    return (
        name in ("cmake", "cmake3")
        and len(words) > 1
        and not {"-E", "-P", "--version"} & set(words)
    )


def _folder(words):
    for before, word in zip(words, words[1:]):
        if before == "-C":
            return word
    return "."


def _words_of(command):
    """Return the words of a command, also if it is one line for a shell."""
    if isinstance(command, str):
        import shlex

        try:
            return shlex.split(command)
        except ValueError:
            return [command]
    return [command] if isinstance(command, (bytes, os.PathLike)) else list(command)


def _record_programs():
    import subprocess

    usual = subprocess.Popen.__init__

    def start(self, args, *rest, **how):
        words = _words_of(args)
        try:
            reason = _replaced(words)
        except (TypeError, ValueError):
            reason = None
        if reason == "build" and len(words) > 2 and "--build" in words:
            _list_commands(words[words.index("--build") + 1])
        if reason:
            _note("skipped", words=[os.fsdecode(word) for word in words], why=reason)
            how.pop("shell", None)
            args = ["true"]
            rest = ()
            how = {k: v for k, v in how.items() if k != "executable"}
        elif _DISCONNECTED and _configures(words):
            args = f"{args} {_DISCONNECTED}" if isinstance(args, str) else [*args, _DISCONNECTED]
        return usual(self, args, *rest, **how)

    subprocess.Popen.__init__ = start  # type: ignore[method-assign]


def _list_commands(folder):
    """Write what ninja would run in a build folder of CMake."""
    import shutil
    import subprocess

    ninja = shutil.which("ninja")
    folder = os.fsdecode(folder)
    if ninja and os.path.exists(folder + "/build.ninja"):
        with open(folder + "/compdb.json", "wb") as stream:
            subprocess.call([ninja, "-C", folder, "-t", "compdb"], stdout=stream)


def _pretend_version(module):
    if _PRETENDED.get("cuda"):
        if getattr(module, "cuda", None) is None:
            module.cuda = _PRETENDED["cuda"]
        # Projects choose their own files by the end of the version: torch takes its own from here.
        release = getattr(module, "__version__", "").partition("+")[0]
        module.__version__ = release + "+cu" + _PRETENDED["cuda"].replace(".", "")


def _pretend_gpu(module):
    from types import SimpleNamespace

    visible = 1 if _PRETENDED.get("visible") else 0
    capability = tuple(_PRETENDED.get("capability") or (0, 0))
    name = _PRETENDED.get("name") or "GPU"

    def noted(function, value):
        def answer(*_, **__):
            place = _place()
            if place:
                _note("gpu", name=function, where=place)
            if isinstance(value, BaseException):
                raise value
            return value

        return answer

    missing = RuntimeError("No CUDA GPUs are available")
    properties = SimpleNamespace(
        name=name,
        major=capability[0],
        minor=capability[1],
        total_memory=80 << 30,
        multi_processor_count=132,
        gcnArchName="",
    )
    answers = {
        "is_available": bool(visible),
        "device_count": visible,
        "current_device": 0 if visible else missing,
        "get_device_capability": capability if visible else missing,
        "get_device_name": name if visible else missing,
        "get_device_properties": properties if visible else missing,
    }
    for function, value in answers.items():
        setattr(module, function, noted(function, value))
    if _PRETENDED.get("cuda"):
        module._is_compiled = lambda: True
        # That of the wheel, which decides nothing about what is asked for.
        module.get_arch_list = lambda: list(_PRETENDED.get("archs") or ["sm_%d%d" % capability])


_PATCHES = {"torch.version": _pretend_version, "torch.cuda": _pretend_gpu}


class _Finder:
    """Finds the modules of torch that are to be changed after they are loaded."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in _PATCHES:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            usual = spec.loader.exec_module

            def exec_module(module):
                usual(module)
                _PATCHES[name](module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _Lender:
    """Finds packages that the Python of the build lacks and a build would install."""

    @classmethod
    def find_spec(cls, name, path=None, *_):
        from importlib.machinery import PathFinder

        folder = _LENT.get(name) if path is None else None
        return PathFinder.find_spec(name, [folder]) if folder else None


if _NOTES:
    sys.meta_path.append(_Lender)
    _record_environment()
    _record_parsers()
    _record_programs()
    if _PRETENDED:
        sys.meta_path.insert(0, _Finder)

"""Explains why a library that was linked cannot be loaded: a name that nothing defines.

A shared library may be linked although names are undefined, so that only its first load fails. The
name and the path of the library tell whose the name is. Ranks nothing.
"""

import re
from collections.abc import Iterator

from stoker.diagnose.lines import compiled
from stoker.diagnose.signs import LogSearch, Match, symptom
from stoker.knowledge.owners import owner_of_name

_FAILED_LOADS = (
    (
        r"(?P<file>/[^\s:'\"]{1,300}\.(?:so[\d.]{0,12}|node)): undefined symbol: {0,2}"
        r"(?P<symbol>[A-Za-z_.$][\w.$]{2,400})"
    ),
    (
        r"dlopen\((?P<file>[^,)\s]{1,300}), 0x\w{1,8}\): symbol not found in flat namespace "
        r"\(?['\"]?_?(?P<symbol>_Z\w{2,400}|\w{2,200})"
    ),
)
# A program, or a library of a system, that finds another release of what it was linked with.
_OTHER_RELEASE = (
    (
        r"(?:symbol lookup|relocation) error: (?P<file>\S{2,300}?): (?:undefined symbol: |symbol )"
        r"(?P<symbol>[A-Za-z_]\w{2,400})"
    ),
    (
        r"(?P<file>[^\s:'\"]{1,300}\.so[\d.]{0,12}): undefined symbol: "
        r"(?P<symbol>[A-Za-z_]\w{2,400}), version (?P<tag>Qt_\w{1,20})"
    ),
)
_DYLD = r"Symbol not found: \(?_?(?P<symbol>[A-Za-z_]\w{2,400})\)?$"
_EXPECTED_IN = (
    r"Expected in:\s{1,8}(?:<[\w-]{1,40}> )?"
    r"(?P<library>/(?!usr/lib/|System/)[^'\n]{2,200}?\.(?:dylib|so)"
    r"|/\S{2,200}/Frameworks/\S{2,200}|/\S{2,200}\.framework/\S{1,200})"
)
_EXPECTED_BELOW = 4  # lines
_OPENMP = r"^_{0,2}(?:kmpc|GOMP)_"  # functions of the runtime that each compiler brings its own of
PATTERNS = (*_FAILED_LOADS, *_OTHER_RELEASE, _DYLD)
# The first name in a mangled one, and how long it is: a log may be cut off within it.
_MANGLED = (
    r"^_Z(?:T[VTIS]|GV|Th?n?\d{1,4}_)?(?P<inner>N[KVRO]{0,3})?(?P<size>\d{1,3})(?P<rest>\w{1,400})"
)
_TENSOR = r"N2at6TensorE|RKN2at6|N5torch6Tensor"  # types of PyTorch that a function takes
# Namespaces of libraries that extensions are compiled for: their names are not the extension's own.
_OF_OTHERS = {
    "at", "c10", "c10d", "torch", "caffe2", "std", "cv", "fmt", "spdlog", "absl", "google", "boost",
    "tensorflow", "tsl", "xla", "paddle", "dnnl", "cuda", "thrust", "cub", "Eigen", "arrow", "llvm",
    "mlir", "icu", "grpc", "grpc_core", "nvinfer1", "hip", "sycl", "tbb", "pybind11", "Json",
    "YAML",
}  # fmt: skip
_OF_QT = r"^(?:q[A-Z]|qt_)"  # functions of Qt are in no namespace
_EXTENSION = (
    r"\.cpython-|\.abi3\.so$|/torch_extensions/|/(?:site|dist)-packages/|_cuda\w{0,12}\.so$"
)
_SUFFIX = r"(?:\.(?:cpython|abi3|pypy)[\w.-]*)?\.(?:so[\d.]*|node|dylib)$"
_PACKAGE = r"/(?:site|dist)-packages/(?P<package>[A-Za-z]\w{1,60})/"
# Where vendors install what is no package of Python and none of the system.
_VENDOR = (
    r"^(?P<place>/(?:usr/local|opt)/(?!lib|bin|share|\w{0,10}conda|python|venv|homebrew)"
    r"[\w.-]{2,40})/"
)
_LEAST = 3  # letters of a namespace that tells something
_BEFORE = 30  # lines of a traceback that name who loads


def failed_loads(search: LogSearch) -> Iterator[Match]:
    """Yield the libraries that lack a name of their own, and those that were linked with another
    release of a library than the one that is loaded.
    """
    yield from _modules(search)
    yield from _programs(search)
    yield from _of_dyld(search)


def _modules(search: LogSearch) -> Iterator[Match]:
    """Yield what modules of Python and Node.js, and libraries of vendors, lack."""
    for line, groups in search.hits(_FAILED_LOADS):
        file, symbol = groups["file"], groups["symbol"]
        named = {"module": file.rpartition("/")[2], "symbol": symbol}
        if is_own(symbol, file):
            yield symptom("module-incomplete", line, 0.88, named)
        elif (place := compiled(_VENDOR).match(file)) and not _is_of_torch(symbol):
            named |= {"place": place["place"]}
            user = _loading(search, line, place["place"])
            yield symptom("loaded-library-mismatch", line, 0.84, named | user)
        elif compiled(_OPENMP).match(symbol):
            yield symptom("openmp-runtime-other", line, 0.86, named)


def _programs(search: LogSearch) -> Iterator[Match]:
    """Yield what programs, and libraries with versions of their names, do not find."""
    for line, groups in search.hits(_OTHER_RELEASE):
        module, symbol = groups["file"].rpartition("/")[2], groups["symbol"]
        if not is_own(symbol, groups["file"]) and not _is_of_torch(symbol):
            yield symptom("loaded-other-release", line, 0.8, {"module": module, "symbol": symbol})


def _of_dyld(search: LogSearch) -> Iterator[Match]:
    """Yield what macOS expects in a library that is not one of the system."""
    for line, groups in search.hits([_DYLD]):
        below = search.lines[line + 1 : line + 1 + _EXPECTED_BELOW]
        places = (compiled(_EXPECTED_IN).search(one.text) for one in below)
        if found := next(filter(None, places), None):
            named = {"library": found["library"].rpartition("/")[2], "symbol": groups["symbol"]}
            yield symptom("loaded-other-release", line, 0.8, named)


def is_own(symbol: str, file: str) -> bool:
    """Return whether a name is of the library that lacks it: its namespace is called as the library
    or its package, or it is a function of an extension that is in no namespace.
    """
    found = compiled(_MANGLED).match(symbol)
    if not found or compiled(r"__device_stub__|^_Z\d{1,3}THP").search(symbol):
        return False
    size = int(found["size"])
    name = found["rest"][:size]
    if not found["inner"]:
        is_known = bool(owner_of_name(name) or compiled(_OF_QT).match(name))
        takes_tensors = bool(compiled(_TENSOR).search(symbol))
        in_extension = bool(compiled(_EXTENSION).search(file)) and "/torch/lib/" not in file
        return in_extension and not is_known and (takes_tensors or len(name) < len(found["rest"]))
    if name in _OF_OTHERS or size < _LEAST or owner_of_name(f"{name}::"):
        return False
    if len(name) < size:  # cut off: as long as the beginning of a word of the module
        return any(one.startswith(name) and one[size : size + 1] in "_-." for one in _words(file))
    return any(_plain(one).startswith(_plain(name)) for one in _words(file))


def _words(file: str) -> list[str]:
    """Return what a library and its package are called."""
    stem = re.sub(_SUFFIX, "", file.rpartition("/")[2])
    package = compiled(_PACKAGE).search(file)
    return [stem.removeprefix("lib").lstrip("_")] + ([package["package"]] if package else [])


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _is_of_torch(symbol: str) -> bool:
    found = compiled(_MANGLED).match(symbol)
    name = found["rest"][: int(found["size"])] if found else ""
    return name in {"at", "c10", "torch", "caffe2"}


def _loading(search: LogSearch, line: int, place: str) -> dict[str, str]:
    """Return the package of Python that loads a library of a vendor, if a traceback names it."""
    above = search.lines[max(0, line - _BEFORE) : line]
    packages = [
        found["package"]
        for one in above
        if place not in one.text and (found := compiled(_PACKAGE).search(one.text))
    ]
    own = [name for name in packages if name != "torch"]
    return {"user": own[-1]} if own else {}

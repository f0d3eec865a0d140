"""Wheels of one project on a server: thirty that do not fit a machine and its PyTorch, each for a
known reason, and any number that fit.
"""

import platform
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from built_libraries import CUBIN, PTX, entry, region
from conftest import Need
from stoker.outside.files import sha256_of
from torch_extensions import OLD_CHECK, WARN, extension
from wheel_files import record

MACHINE = platform.machine()
OTHER = "x86_64" if MACHINE == "aarch64" else "aarch64"
PADDING = 2_000_000  # bytes in each wheel that need not be read
ELSEWHERE = "_ZN2at9elsewhereEv"
OLD_STRING = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"  # of the C++ ABI before C++11


class Shelf:
    """The wheels on the server for a Python, with the reason why each is refused."""

    def __init__(self, folder: Path, libraries: dict[str, bytes], python: str):
        self.folder = folder
        self.libraries = libraries
        self.python = python
        self.reasons: dict[str, str] = {}

    def tag(self, platforms: str = f"manylinux_2_28_{MACHINE}", suffix: str = "") -> str:
        interpreter = "cp" + "".join(self.python.split(".")[:2])
        return f"{interpreter}-{interpreter}{suffix}-{platforms}"

    def put(
        self,
        reason: str,
        *,
        version: str = "1.0",
        build: int = 0,
        tag: str | None = None,
        said_tag: str | None = None,
        said_version: str | None = None,
        python: str = ">=3.9",
        requires: str = "torch",
        library: str = "good",
        damage: str = "",
    ) -> str:
        tag = tag or self.tag()
        file = f"mill-{version}{f'-{build}' if build else ''}-{tag}.whl"
        info = f"mill-{version}.dist-info"
        metadata = (
            f"Metadata-Version: 2.1\nName: mill\nVersion: {said_version or version}\n"
            f"Requires-Python: {python}\nRequires-Dist: {requires}\n\n"
        )
        wheel = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {said_tag or tag}\n"
        contents = {
            "mill/padding.bin": b"\0" * PADDING,
            "mill/_C.so": self.libraries[library],
            "mill/include/algorithm.sort_heap.h": b"// no library",
            f"{info}/METADATA": metadata.encode(),
            f"{info}/WHEEL": wheel.encode(),
        }
        if damage == "no metadata":
            del contents[f"{info}/METADATA"]
        path = self.folder / file
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, content in {**contents, f"{info}/RECORD": record(contents, info)}.items():
                archive.writestr(name, content)
        if damage == "cut":
            path.write_bytes(path.read_bytes()[:-1000])
        if damage == "page":
            path.write_bytes(b"<html>not found</html>" * 1000)
        self.reasons[file] = reason
        return file

    def write_page(self) -> int:
        """Write the page of the project that lists all files; return its size."""
        files = sorted(path for path in self.folder.iterdir() if path.name != "index.html")
        links = (f'<a href="{path.name}#sha256={sha256_of(path)}">x</a>\n' for path in files)
        return (self.folder / "index.html").write_text("".join(links))


def full_shelf(need: Need, folder: Path, *, python: str, torch: str) -> Shelf:
    """Return a shelf with thirty wheels that do not fit a machine with a Python X.Y.Z, an sm_90
    GPU, glibc older than 2.99, and a PyTorch of CUDA 13 that exports ``WARN``.
    """
    folder.mkdir(parents=True)
    shelf = Shelf(folder, dict(_libraries(need)), python)
    minor = int(python.split(".")[1])
    others = [one for one in range(9, 15) if one != minor][:4]
    for other in others:
        tag = f"cp3{other}-cp3{other}-manylinux_2_28_{MACHINE}"
        shelf.put(f"it is for Python cp3{other}, not {python}", tag=tag)
    shelf.put(f"it is for Python cp3{minor}t, not", tag=shelf.tag(suffix="t"))
    shelf.put("not linux", tag=shelf.tag(f"manylinux_2_28_{OTHER}"))
    shelf.put("not linux", tag=shelf.tag("win_amd64"))
    shelf.put("not linux", tag=shelf.tag("macosx_11_0_arm64"))
    shelf.put("it needs glibc 2.99", tag=shelf.tag(f"manylinux_2_99_{MACHINE}"))
    shelf.put("it needs", tag=shelf.tag(f"musllinux_1_2_{MACHINE}"))
    numbers = iter(range(1, 100))
    for requires in ("torch==2.9.1", "torch<2.10", "torch>=9", "torch==2.12.*"):
        shelf.put(f"not torch {torch}", build=next(numbers), requires=requires)
    for wanted in (f"<3.{minor}", f">=3.{minor + 1}"):
        shelf.put(f"it requires Python {wanted}", build=next(numbers), python=wanted)
    lacking = {"old": "c10::cuda::c10_cuda_check_implementation(int, char const*, char const*, int"}
    lacking["other"] = "at::elsewhere()"
    lacking["old-string"] = (
        "c10::detail::torchCheckFail(char const*, char const*, unsigned int, std::"
    )
    for library, symbol in lacking.items():
        shelf.put(f"does not export {symbol}", build=next(numbers), library=library)
    shelf.put("it needs libc10_hip.so", build=next(numbers), library="hip")
    shelf.put("cannot run what it holds: sm_80", build=next(numbers), library="sm80")
    shelf.put("cannot run what it holds: compute_120, sm_120", build=next(numbers), library="sm120")
    for damage in ("cut", "page", "no metadata"):
        shelf.put("it is damaged", build=next(numbers), damage=damage)
    shelf.put("it is damaged", build=next(numbers), library="broken")
    shelf.put("the wheel itself mill 0.9", build=next(numbers), said_version="0.9")
    said = f"cp3{others[0]}-cp3{others[0]}-manylinux_2_28_{MACHINE}"
    shelf.put(f"it is for Python cp3{others[0]}", build=next(numbers), said_tag=said)
    shelf.put("it was built for torch 2.9", version="1.0+torch2.9")
    short = ".".join(torch.split(".")[:2])
    shelf.put("it is for CUDA 12", version=f"1.0+cu12torch{short}cxx11abiTRUE")
    assert len(shelf.reasons) == 30
    return shelf


@cache
def _libraries(need: Need) -> dict[str, bytes]:
    """Return libraries by what is wrong with them; compiling them takes seconds."""
    with TemporaryDirectory() as folder:
        return _linked(need, Path(folder))


def _linked(need: Need, work: Path) -> dict[str, bytes]:
    both = ("libc10.so", "libc10_cuda.so")
    sm90 = region([entry(CUBIN, 90, b"x" * 80)])
    symbols = {"good": (), "old": (OLD_CHECK,), "other": (ELSEWHERE,), "old-string": (OLD_STRING,)}
    libraries = {
        name: extension(need, work / name, [WARN, *more], *both, code=sm90)
        for name, more in symbols.items()
    }
    codes = {
        "sm80": region([entry(CUBIN, 80, b"x" * 80)]),
        "sm120": region([entry(CUBIN, 120, b"x" * 80), entry(PTX, 120, b"x" * 80)]),
    }
    for name, code in codes.items():
        libraries[name] = extension(need, work / name, [WARN], *both, code=code)
    libraries["hip"] = extension(need, work / "hip", [WARN], "libc10_hip.so")
    libraries["plain"] = extension(need, work / "plain", [])
    libraries["broken"] = libraries["good"][:3000]
    return libraries

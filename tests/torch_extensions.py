"""Libraries that need symbols of PyTorch, and a PyTorch that exports some, for tests."""

from collections.abc import Iterable
from pathlib import Path

from built_libraries import build
from conftest import Need

# A signature that PyTorch exported until 2.9, and one that it exports in every release.
OLD_CHECK = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"
WARN = "_ZN3c104warnERKNS_7WarningE"


def _library(need: Need, folder: Path, name: str, source: str, *needed: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    soname = f"-Wl,-soname,{name}"
    return build(
        need, folder, "-Wl,--no-as-needed", *map(str, needed), soname, source=source, name=name
    )


def torch_stub(need: Need, site: Path, exported: Iterable[str], *, version: str = "2.99.0") -> Path:
    """Return site-packages with a PyTorch whose libraries export only these names."""
    functions = "".join(f'extern "C" void {name}() {{}}\n' for name in exported)
    for name in ("libc10.so", "libc10_cuda.so", "libc10_hip.so", "libtorch_cpu.so"):
        source = functions if name == "libc10.so" else f"int in_{name[:-3]};"
        _library(need, site / "torch/lib", name, source)
    (site / "torch/version.py").write_text(f"__version__ = '{version}'\n")
    return site


def installed_torch(need: Need, site: Path, exported: Iterable[str], *, version: str) -> None:
    """Install a PyTorch for CUDA 13.0 into site-packages that exports only these names, and whose
    import makes them known to extensions.
    """
    torch_stub(need, site, exported, version=version)
    library = site / "torch/lib"
    (library / "libc10_hip.so").unlink()
    runtime = _library(need, library, "libcudart.so.13", "int runtime;")
    _library(need, library, "libc10_cuda.so", "int in_libc10_cuda;", runtime)
    (site / "torch/version.py").write_text(f"__version__ = '{version}'\ncuda: str = '13.0'\n")
    (site / "torch/__init__.py").write_text(
        "import ctypes, os\n"
        "_lib = os.path.join(os.path.dirname(__file__), 'lib', 'libc10.so')\n"
        "ctypes.CDLL(_lib, ctypes.RTLD_GLOBAL)\n"
    )
    info = site / f"torch-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    (info / "RECORD").write_text(
        f"torch/__init__.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n"
    )


def extension(
    need: Need, folder: Path, names: Iterable[str], *needed: str, code: bytes = b""
) -> bytes:
    """Return a library that needs these names from these libraries of PyTorch. ``code`` is its
    device code.
    """
    stubs = folder.parent / "stub"  # shared by extensions that are made beside each other
    if not stubs.exists():
        torch_stub(need, stubs, ())
    folder.mkdir(parents=True, exist_ok=True)
    declared = "".join(f'extern "C" void {name}();\n' for name in names)
    called = "".join(f"{name}();" for name in names)
    source = f'{declared}extern "C" void grind() {{ {called} }}\n'
    if code:
        (folder / "code.bin").write_bytes(code)
        section = r".section .nv_fatbin,\"a\"\n .balign 8\n .incbin \"code.bin\"\n .text\n"
        source += f'asm("{section}");\n'
    libraries = [stubs / "torch/lib" / name for name in needed]
    return _library(need, folder, "_C.so", source, *libraries).read_bytes()

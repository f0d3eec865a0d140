"""Libraries that need symbols of PyTorch, and a PyTorch that exports some, for tests."""

from collections.abc import Iterable
from pathlib import Path

from built_libraries import Need, build

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

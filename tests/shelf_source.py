"""The source of the project on the shelf: its own build back end compiles one kernel with nvcc, and
links it with the PyTorch that is there.
"""

import io
import tarfile
from pathlib import Path

KERNEL = """
#include <Python.h>
extern "C" void _ZN3c104warnERKNS_7WarningE();
__global__ void grind(float *grain) { grain[threadIdx.x] *= 2; }
void *never(int called) { return called > 0 ? (void *)_ZN3c104warnERKNS_7WarningE : 0; }
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", 0, -1, 0};
PyMODINIT_FUNC PyInit__C(void) { never(0); return PyModule_Create(&module); }
"""
BACKEND = """
import base64, hashlib, os, subprocess, sysconfig, zipfile
import torch

def build_wheel(folder, settings=None, metadata=None):
    wanted = os.environ.get("TORCH_CUDA_ARCH_LIST", "8.0;9.0")
    targets = wanted.replace(".", "").replace(" ", ";").split(";")
    codes = [f"-gencode=arch=compute_{one},code=sm_{one}" for one in targets]
    include, here = sysconfig.get_path("include"), os.path.dirname(torch.__file__)
    compiled = ["nvcc", "-Xcompiler", "-fPIC", *codes, "-I", include, "-c", "c.cu", "-o", "c.o"]
    subprocess.run(compiled, check=True)
    linked = ["nvcc", "-shared", *codes, "c.o", f"-L{here}/lib", "-lc10", "-o", "_C.so"]
    subprocess.run(linked, check=True)
    tag = "cp{0}-cp{0}-linux_{1}".format(
        sysconfig.get_config_var("py_version_nodot"), os.uname().machine
    )
    name, info = f"mill-1.0-{tag}.whl", "mill-1.0.dist-info"
    about = "Metadata-Version: 2.1\\nName: mill\\nVersion: 1.0\\nRequires-Dist: torch\\n"
    wheel = f"Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: false\\nTag: {tag}\\n"
    contents = {
        "mill/__init__.py": b"import torch\\nfrom . import _C\\n",
        "mill/_C.so": open("_C.so", "rb").read(),
        f"{info}/METADATA": about.encode(),
        f"{info}/WHEEL": wheel.encode(),
    }
    lines = [f"{info}/RECORD,,\\n"]
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        for member, content in contents.items():
            archive.writestr(member, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
            lines.append(f"{member},sha256={digest.rstrip('=')},{len(content)}\\n")
        archive.writestr(f"{info}/RECORD", "".join(lines))
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "mill"
version = "1.0"
"""


def put_source(folder: Path) -> Path:
    """Write the source distribution of mill 1.0."""
    path = folder / "mill-1.0.tar.gz"
    files = {"pyproject.toml": PROJECT, "backend.py": BACKEND, "c.cu": KERNEL}
    files["PKG-INFO"] = "Metadata-Version: 2.1\nName: mill\nVersion: 1.0\n"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"mill-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path

"""Compare three ways to serve two GPU targets, on kernels of a configured PyTorch tree.

many_gpus.py BUILD_FOLDER CUOBJDUMP RESULT.json SOURCE.cu... compiles each source (such as
NLLLoss2d.cu) for sm_80, for sm_90 and for both, with the command that ninja has for it, links each
set to a library, packs it in a wheel, slims the wheel with both targets for each of them with
`stoker slim`, and compares the machine code with that of the builds for one target. CPU time is
that of nvcc and its children.
"""

import hashlib
import json
import os
import platform
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import zipfile
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SETS = {"sm_80": ("80",), "sm_90": ("90",), "both": ("80", "90")}
GENCODE = re.compile(r"-gencode[= ]arch=compute_\w+,code=\S+\s*")


def compiled(folder: Path, command: str, targets: tuple[str, ...], made: Path) -> dict[str, float]:
    """Compile one source for some targets; return CPU seconds and the bytes of the object."""
    flags = " ".join(f"-gencode arch=compute_{each},code=sm_{each}" for each in targets)
    command = re.sub(r"^\S*ccache ", "", GENCODE.sub("", command))
    command = re.sub(r" -o \S+", f" {flags} -o {shlex.quote(str(made))}", command)
    command = re.sub(r" -MF \S+", f" -MF {shlex.quote(str(made))}.d", command)
    before = os.times()
    subprocess.run(["sh", "-c", command], cwd=folder, check=True)
    after = os.times()
    seconds = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return {"cpu_s": round(seconds, 1), "bytes": made.stat().st_size}


def wheel(library: Path, place: Path) -> Path:
    """Return a wheel with one library."""
    tag = f"py3-none-linux_{platform.machine()}"
    place.mkdir()
    made = place / f"kernels-1.0-{tag}.whl"
    files = {
        "kernels/libkernels.so": library.read_bytes(),
        "kernels-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: kernels\nVersion: 1.0\n",
        "kernels-1.0.dist-info/WHEEL": (
            f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
        ),
    }
    digests = {
        name: urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        for name, data in files.items()
    }
    record = "".join(f"{name},sha256={digests[name]},{len(files[name])}\n" for name in files)
    record += "kernels-1.0.dist-info/RECORD,,\n"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (*files.items(), ("kernels-1.0.dist-info/RECORD", record.encode())):
            archive.writestr(name, data)
    return made


def machine_code(cuobjdump: str, packed: Path, target: str) -> Counter[str]:
    """Return the digests of the machine code for one target in a wheel."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(packed) as archive:
            library = archive.extract("kernels/libkernels.so", folder)
        subprocess.run(
            [cuobjdump, "-xelf", "all", library], cwd=folder, check=True, capture_output=True
        )
        found = [each for each in Path(folder).rglob("*.cubin") if target in each.name]
        return Counter(digest for each in found for digest in code_digests(each.read_bytes()))


def code_digests(cubin: bytes) -> Iterator[str]:
    """Yield the digest of each kernel's instructions. Names are left out: those of CUB contain the
    list of targets, and a cubin also holds the command line of its compiler.
    """
    (table,), (size, count, names) = (
        struct.unpack_from("<Q", cubin, 40),
        struct.unpack_from("<3H", cubin, 58),
    )
    sections = [struct.unpack_from("<2I4Q", cubin, table + at * size) for at in range(count)]
    texts = sections[names][4]
    for name, _, _, _, start, length in sections:
        if cubin[texts + name :].startswith(b".text."):
            yield hashlib.sha256(cubin[start : start + length]).hexdigest()


def main(folder: Path, cuobjdump: str, result: Path, sources: list[str]) -> None:
    listed = subprocess.run(
        ["ninja", "-C", folder, "-t", "targets", "all"], check=True, capture_output=True, text=True
    )
    objects = {line.split(": ")[0] for line in listed.stdout.splitlines() if ".cu.o: " in line}
    with tempfile.TemporaryDirectory() as place:
        work, sizes, packed = Path(place), dict[str, int](), dict[str, Path]()
        steps: dict[str, dict[str, dict[str, float]]] = {}
        for source in sources:
            (output,) = [each for each in objects if each.endswith(f"/{source}.o")]
            commands = subprocess.run(
                ["ninja", "-C", folder, "-t", "commands", "-s", output],
                check=True,
                capture_output=True,
                text=True,
            )
            command = commands.stdout.splitlines()[-1]
            for name, targets in SETS.items():
                made = work / f"{Path(source).name}.{name}.o"
                steps.setdefault(source, {})[name] = compiled(folder, command, targets, made)
            print(source, steps[source], flush=True)
        for name in SETS:
            library = work / f"{name}.so"
            subprocess.run(["g++", "-shared", "-o", library, *work.glob(f"*.{name}.o")], check=True)
            packed[name] = wheel(library, work / name)
            sizes[name] = packed[name].stat().st_size
        same = {}
        for target in ("sm_80", "sm_90"):
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "stoker",
                    "slim",
                    packed["both"],
                    "--for",
                    target.replace("_", ""),
                    "--out",
                    work / f"slim-{target}",
                ],
                check=True,
            )
            (slimmed,) = (work / f"slim-{target}").glob("*.whl")
            sizes[f"both, slimmed for {target}"] = slimmed.stat().st_size
            mine, alone = (
                machine_code(cuobjdump, each, target) for each in (slimmed, packed[target])
            )
            same[target] = {
                "equal": (mine & alone).total(),
                "of": alone.total(),
                "only_slimmed": (mine - alone).total(),
            }
    seconds = {name: round(sum(step[name]["cpu_s"] for step in steps.values()), 1) for name in SETS}
    found = {
        "what": __doc__.splitlines()[0],
        "machine": platform.machine(),
        "cpu_s": seconds,
        "wheel_bytes": sizes,
        "same_machine_code": same,
        "steps": steps,
    }
    result.write_text(json.dumps(found, indent=1) + "\n")
    print(result.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4:])

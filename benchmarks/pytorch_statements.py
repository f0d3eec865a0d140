"""Checks what stoker states about PyTorch trees against the trees themselves.

    benchmarks/pytorch_statements.py TREE...

Prints one line per tree and statement, and exits with 1 if one is wrong. The trees are read here in
another way than stoker reads them: by patterns in the one file that decides.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STOKER = Path(sys.executable).with_name("stoker")
NEEDLESS = {"cmake", "ninja"}  # checked as programs


class Tree:
    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.cuda = self.plan("cu130-sm90", USE_TENSORRT="1", USE_MKL="1")
        listed = self.said("plan", "--options")["options"]
        self.options = {each["name"]: each for each in reversed(listed)}
        self.doctor = self.said("doctor", "cu130-sm90")["findings"]

    def text(self, name: str) -> str:
        file = self.path / name
        return file.read_text(errors="replace") if file.is_file() else ""

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        hidden = ("TORCH_CUDA_ARCH_LIST", "USE_CUDA", "CMAKE_CUDA_ARCHITECTURES")
        kept = {name: value for name, value in os.environ.items() if name not in hidden}
        command = [str(STOKER), words[0], *words[1:], "--source", str(self.path), "--json"]
        return subprocess.run(
            command, env=kept | variables, capture_output=True, text=True, check=False
        )

    def said(self, *words: str, **variables: str) -> Any:
        return json.loads(self.run(*words, **variables).stdout)

    def plan(self, *words: str, **variables: str) -> Any:
        return self.said("plan", *words, "--platform", "linux-x86_64", **variables)

    def titles(self) -> str:
        return "\n".join(each["title"] for each in self.cuda["findings"])

    def single_kernels(self, words: str) -> set[str]:
        return set(self.plan(words)["targets"]["accepted"])

    def language(self, words: tuple[str, ...]) -> str:
        targets = self.said("plan", *words)["targets"]
        return str(targets["language"].partition(":")[0])


def added(tree: Tree, digits: str, cuda: float) -> set[str]:
    """Return the targets that Codegen.cmake adds to those for a capability."""
    text = tree.text("cmake/Codegen.cmake")
    if "_BUILD_FOR_ADDITIONAL_ARCHS" not in text:
        single = re.search(r"compute_(\d+)\.\*\"\).*?code=sm_(\w+)\"", text, re.DOTALL)
        return {dotted(single[2])} if single and single[1] == digits else set()
    lists = re.findall(r'ARCHS\(\n\s*"[^"]*"\n\s*"([^"]*)"\)', text)
    used = {word for each in lists for word in each.split(";")}
    found = set()
    for block in text.split('if("${_arch}" STREQUAL ')[1:]:
        least = re.search(r"GREATER_EQUAL (\d+\.\d+)", block.splitlines()[0])
        of = re.search(r"compute_(\d+)\.\*", block)
        arch = re.search(r"code=sm_(\w+)", block)
        made = least is None or cuda >= float(least[1])
        if of and arch and made and of[1] == digits and arch[1] in used:
            found.add(dotted(arch[1]))
    return found


def dotted(digits: str) -> str:
    return re.sub(r"(\d+)(\d)([af]?)", r"\1.\2\3", digits)


def pythons(tree: Tree) -> tuple[int, int]:
    project, setup = tree.text("pyproject.toml"), tree.text("setup.py")
    oldest = re.search(r'requires-python = ">=3\.(\d+)"', project)
    oldest = oldest or re.search(r"python_min_version = \(3, (\d+)", setup)
    listed = re.findall(r":: 3\.(\d+)\"", project) or re.findall(r"info\[1\], (\d+)\)", setup)
    assert oldest
    assert listed
    return int(oldest[1]), max(map(int, listed))


def accepts(tree: Tree, minor: int) -> bool:
    return tree.run("plan", f"cpu-py3{minor}").returncode == 0


def reads(tree: Tree, name: str) -> bool:
    """Return whether the file and line that a plan names really mention a variable."""
    place = tree.cuda["readers"].get(name, "")
    file, _, line = place.rpartition(":")
    lines = tree.text(file).splitlines()
    return line.isdecimal() and any(name in each for each in lines[int(line) - 1 : int(line) + 4])


def required(tree: Tree) -> set[str]:
    pattern = r"(?ms)^\[build-system\]\nrequires = \[(.*?)^\]"
    system = re.search(pattern, tree.text("pyproject.toml"))
    assert system
    return set(re.findall(r'^\s*"([\w-]+)', system[1], re.MULTILINE)) - NEEDLESS


def missing(tree: Tree) -> set[str]:
    evidence = [each["evidence"] for each in tree.doctor if each["name"] == "requirements-missing"]
    return {re.split(r"[<>=!~ ;\[]", word)[0] for text in evidence for word in text.split(", ")}


def statements(tree: Tree) -> Iterator[tuple[str, object, object]]:
    """Yield what a statement is about, what stoker says, and what the tree says."""
    cmake = tree.text("CMakeLists.txt")
    skbuild = "scikit_build_core" in tree.text("pyproject.toml")
    oldest, newest = pythons(tree)
    yield "version", tree.cuda["source"]["version"], tree.text("version.txt").strip()
    front_end = "scikit-build-core" if skbuild else "setup.py"
    yield "front end", tree.cuda["source"]["front_end"], front_end
    yield "requirements are those of the build", missing(tree) - required(tree), set()
    yield "oldest Python", (accepts(tree, oldest - 1), accepts(tree, oldest)), (False, True)
    yield "newest Python", (accepts(tree, newest), accepts(tree, newest + 1)), (True, False)
    default = re.search(r'option\(USE_DISTRIBUTED "[^"]*" (\w+)\)', cmake)
    yield "USE_DISTRIBUTED", tree.options["USE_DISTRIBUTED"]["default"], default and default[1]
    tests = tree.options["BUILD_TEST"]
    on = re.search(r'option\(BUILD_TEST "[^"]*" ON\)', cmake) is not None
    on |= 'not check_negative_env_flag("BUILD_TEST")' in tree.text("tools/build_pytorch_libs.py")
    yield "BUILD_TEST", tests["default"] == "ON" or bool(tests["turned_on"]), on
    printed = "${USE_TENSORRT}" in tree.text("cmake/Summary.cmake")
    yield "USE_TENSORRT", "only prints it" in tree.titles(), printed
    yield "USE_MKL", "BLAS=MKL" in tree.titles(), not re.search(r"option\(USE_MKL ", cmake)
    fetches = "ExternalProject_Add" in tree.text("cmake/External/nccl.cmake")
    yield "NCCL is built", not any(e["name"] == "nccl-missing" for e in tree.doctor), fetches
    for words, language, place in (
        (("xpu",), "SYCL", "third_party/xpu.txt"),
        (("mps",), "Metal", "aten/src/ATen/native/mps/kernels"),
        (("vulkan",), "SPIR-V", "aten/src/ATen/native/vulkan/glsl"),
    ):
        yield f"{words[0]} code", tree.language(words), language * (tree.path / place).exists()
    for digits, words, cuda in (
        ("86", "cu128-sm86", 12.8),
        ("90", "cu128-sm90", 12.8),
        ("100", "cu130-sm100", 13.0),
    ):
        listed = f"'{dotted(digits)}'" in tree.text("torch/utils/cpp_extension.py")
        if listed:
            known = added(tree, digits, cuda)
            yield f"single kernels beside {digits}", tree.single_kernels(words), known
        else:
            yield f"sm{digits} is refused", tree.run("plan", words).returncode, 2
    blackwell = tree.run("plan", "cu130-sm120")
    knows = "'12.0'" in tree.text("torch/utils/cpp_extension.py")
    yield (
        "sm120",
        (blackwell.returncode == 0, "2.7 or newer" in blackwell.stderr),
        (knows, not knows),
    )
    yield "a line reads TORCH_CUDA_ARCH_LIST", reads(tree, "TORCH_CUDA_ARCH_LIST"), True
    yield "a line reads USE_CUDA", reads(tree, "USE_CUDA"), True
    own = {name for name in tree.cuda["cmake"] if not name.startswith("CMAKE_")}
    yield "every option exists", {name for name in own if name not in tree.options}, set()


def main() -> int:
    wrong = 0
    for path in sys.argv[1:]:
        tree = Tree(path)
        for number, (about, stated, true) in enumerate(statements(tree), 1):
            right = stated == true
            wrong += not right
            verdict = "right" if right else f"WRONG: stated {stated}, the tree says {true}"
            print(f"{tree.cuda['source']['version']:10} {number:2} {about}: {verdict}", flush=True)
    print(f"{wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())

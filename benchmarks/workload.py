"""Generates a C++ project of heavy and light compiles: workload.py FOLDER --heavy 6 --light 20.

A heavy file is one array whose initialiser the preprocessor multiplies: gcc needs about 370 bytes
an element, so 3 to 5 million elements are 1.1 to 1.9 GB. A light file is functions. For nvcc the
same array stands beside a kernel: cudafe++ and gcc need 0.6 to 0.9 GB for 2 to 3.5 million.
"""

import argparse
import random
from pathlib import Path

TENFOLD = "".join(f"#define E{level} {' '.join([f'E{level - 1}'] * 10)}\n" for level in range(1, 6))
HEAVY = """\
#define E0 {seed},
{tenfold}
int table_{index}[] = {{ {elements} }};
int heavy_{index}(int i) {{ return table_{index}[i]; }}
"""
LIGHT = """\
#include <algorithm>
#include <map>
#include <string>
#include <vector>
{functions}
"""
FUNCTION = """\
int light_{index}_{number}(std::vector<std::string>& words) {{
  std::map<std::string, int> counts;
  for (auto& word : words) counts[word] += {number};
  std::sort(words.begin(), words.end());
  return static_cast<int>(counts.size()) + {index};
}}
"""
KERNELS = """\
template <int N> __global__ void kernel_{index}(float* out) {{
  float y = out[0];
  for (int i = 0; i < N; ++i) y = __fmaf_rn(y, {seed}.0f, float(i)) + __sinf(y);
  out[threadIdx.x] = y;
}}
{instances}
"""
INSTANCE = "template __global__ void kernel_{index}<{depth}>(float*);\n"
CMAKE_CUDA = """\
cmake_minimum_required(VERSION 3.18)
set(CMAKE_CUDA_ARCHITECTURES 80 90)
project(workload LANGUAGES CXX CUDA)
add_library(workload STATIC {sources})
"""
CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(workload LANGUAGES CXX)
add_library(workload STATIC {sources})
"""


def generate(folder: Path, heavy: int, light: int, seed: int) -> None:
    """Write the project; the same arguments give the same files."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for index in range(heavy):
        elements = " ".join(["E5"] * chance.randint(30, 50))
        files[f"heavy_{index}.cpp"] = HEAVY.format(
            seed=chance.randint(1, 999), tenfold=TENFOLD, index=index, elements=elements
        )
    for index in range(light):
        count = chance.randint(20, 60)
        functions = "".join(FUNCTION.format(index=index, number=n) for n in range(count))
        files[f"light_{index}.cpp"] = LIGHT.format(functions=functions)
    names = list(files)
    chance.shuffle(names)
    files["CMakeLists.txt"] = CMAKE.format(sources=" ".join(names))
    for name, text in files.items():
        (folder / name).write_text(text)


def generate_cuda(folder: Path, heavy: int, light: int, seed: int) -> None:
    """Write the project for nvcc: every file has kernels, heavy files also a large array."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for index in range(heavy + light):
        instances = "".join(INSTANCE.format(index=index, depth=depth) for depth in range(1, 9))
        number = chance.randint(1, 999)
        text = KERNELS.format(seed=number, index=index, instances=instances)
        if index < heavy:
            elements = " ".join(["E5"] * chance.randint(20, 35))
            text += HEAVY.format(seed=number, tenfold=TENFOLD, index=index, elements=elements)
        files[f"{'heavy' if index < heavy else 'light'}_{index}.cu"] = text
    names = list(files)
    chance.shuffle(names)
    files["CMakeLists.txt"] = CMAKE_CUDA.format(sources=" ".join(names))
    for name, text in files.items():
        (folder / name).write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--heavy", type=int, default=6)
    parser.add_argument("--light", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    generate(arguments.folder, arguments.heavy, arguments.light, arguments.seed)


if __name__ == "__main__":
    main()

"""Generates a C++ project of heavy and light compiles: workload.py FOLDER --heavy 6 --light 20.

A heavy file is one array whose initialiser the preprocessor multiplies: gcc needs about 370 bytes
an element, so 3 to 5 million elements are 1.1 to 1.9 GB. A light file is functions.
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
template <int N> __device__ float chain(float x) {{
  float y = x * {seed}.0f;
  #pragma unroll
  for (int i = 0; i < 24; ++i) y = __fmaf_rn(y, x, float(i * N)) + __sinf(y);
  return y + chain<N - 1>(y);
}}
template <> __device__ float chain<0>(float x) {{ return x; }}
template <int N> __global__ void kernel_{index}(float* out) {{
  out[threadIdx.x] = chain<N>(out[0]);
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
    """The same arguments give the same files."""
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
    """Kernels for nvcc; a heavy file has deeper recursion and more of it."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for index in range(heavy + light):
        count, deepest = (25, 130) if index < heavy else (2, 12)
        depths = range(deepest - count, deepest)
        instances = "".join(INSTANCE.format(index=index, depth=depth) for depth in depths)
        files[f"kernels_{index}.cu"] = KERNELS.format(
            seed=chance.randint(1, 999), index=index, instances=instances
        )
    files["CMakeLists.txt"] = CMAKE_CUDA.format(sources=" ".join(files))
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

"""Generates the operators and their list: generate.py FOLDER --operators N --points N."""

import argparse
import math
from pathlib import Path

CURVES = {
    "sine": math.sin,
    "exponential": lambda x: math.exp(x - 1),
    "root": math.sqrt,
}
CURVE = """\
#include "curve.hpp"

namespace kiln {{
static const Point curve[] = {{
{points}
}};
void {name}(Tensor& tensor) {{ follow(curve, tensor); }}
}}  // namespace kiln
"""
ADD = """\
#include <algorithm>
#include <functional>
#include <regex>

#include "registry.hpp"

namespace kiln {{
void add_{number}(Tensor& tensor) {{
  std::transform(tensor.data(), tensor.data() + tensor.size(), tensor.data(),
                 [](double value) {{ return value + {number}; }});
}}
}}  // namespace kiln
"""
REGISTRY = """\
#include "registry.hpp"

namespace kiln {{
{declared}
#ifdef KILN_CUDA
void double_on_gpu(Tensor&);
#endif

const std::map<std::string, Function>& operators() {{
  static const std::map<std::string, Function> all = {{
{listed}
#ifdef KILN_CUDA
      {{"double_on_gpu", double_on_gpu}},
#endif
  }};
  return all;
}}
}}  // namespace kiln
"""


def curve(name: str, count: int) -> str:
    """Each point with the rise to the next, in steps of 1/32767."""
    values = [round(CURVES[name](i / (count - 1)) * 32767) for i in range(count)]
    rises = [after - value for value, after in zip(values, [*values[1:], values[-1]], strict=True)]
    points = "\n".join(f"{{{value},{rise}}}," for value, rise in zip(values, rises, strict=True))
    return CURVE.format(name=name, points=points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--operators", type=int, required=True)
    parser.add_argument("--points", type=int, required=True)
    arguments = parser.parse_args()
    texts = {name: curve(name, arguments.points) for name in CURVES}
    texts |= {f"add_{n}": ADD.format(number=n) for n in range(1, arguments.operators + 1)}
    declared = "\n".join(f"void {name}(Tensor&);" for name in texts)
    listed = "\n".join(f'      {{"{name}", {name}}},' for name in texts)
    texts["registry"] = REGISTRY.format(declared=declared, listed=listed)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (arguments.folder / f"{name}.cpp").write_text(text)


if __name__ == "__main__":
    main()

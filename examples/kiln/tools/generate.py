"""Writes the operator files: generate.py FOLDER COUNT."""

import sys
from pathlib import Path

OPERATOR = """\
#include "table.hpp"

namespace kiln {{
void operator_{index}(Tensor& tensor) {{
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] += {index};
}}
}}  // namespace kiln
"""


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    indices = range(1, count + 1)
    for index in indices:
        (folder / f"operator_{index}.cpp").write_text(OPERATOR.format(index=index))
    declared = "".join(f"void operator_{index}(Tensor&);\n" for index in indices)
    listed = ", ".join(f"operator_{index}" for index in indices)
    (folder / "table.cpp").write_text(
        '#include "table.hpp"\n\nnamespace kiln {\n'
        f"{declared}\nconst std::vector<Operator>& operators() {{\n"
        f"  static const std::vector<Operator> all = {{{listed}}};\n  return all;\n}}\n"
        "}  // namespace kiln\n"
    )


if __name__ == "__main__":
    main()

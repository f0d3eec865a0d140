"""Writes the operators: gen.py FOLDER."""

import sys
from pathlib import Path

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "Operators.h").write_text("#pragma once\nint add(int left, int right);\n")
(folder / "Operators.cpp").write_text(
    '#include "aten/Operators.h"\nint add(int left, int right) { return left + right; }\n'
)

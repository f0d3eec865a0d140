"""Writes the parts: generate.py FOLDER COUNT."""

import sys
from pathlib import Path

folder, count = Path(sys.argv[1]), int(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
for index in range(1, count + 1):
    text = f"#include <string>\nint part_{index}() {{ return std::to_string({index}).size(); }}\n"
    (folder / f"part_{index}.cpp").write_text(text)

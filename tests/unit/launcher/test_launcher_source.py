"""The C code is clean for the compiler's own analysis."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import missing
from unit.launcher.conftest import ROOT


@pytest.mark.slow
def test_static_analysis(tmp_path: Path) -> None:
    """Conversions, leaks, null pointers: each warning is an error."""
    gcc, cmake = shutil.which("gcc"), shutil.which("cmake")
    said = (
        subprocess.run([gcc, "-dumpversion"], capture_output=True, text=True, check=True).stdout
        if gcc
        else ""
    )
    if not cmake or not re.match(r"1[2-9]|[2-9]\d", said):
        missing("cmake and gcc 12 or newer")
    options = [f"-DCMAKE_C_COMPILER={gcc}", "-DSTOKER_ANALYZE=ON"]
    subprocess.run([cmake, "-S", ROOT, "-B", tmp_path, *options], check=True, capture_output=True)
    build = [cmake, "--build", str(tmp_path)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr

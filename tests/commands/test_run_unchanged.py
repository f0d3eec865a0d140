"""`stoker run --` in front of a command changes nothing else: compared with the plain command."""

from pathlib import Path

import pytest

from conftest import Need
from governed import Build


@pytest.fixture
def by_default(build: Build) -> Build:
    """A build folder without any settings of the tests' own."""
    del build.environment["STOKER_CACHE"]
    return build


@pytest.mark.parametrize(
    "source",
    [
        '#include "h.h"\nint f(void) { return H; }\n',
        "#if __has_include(<h.h>)\nint f;\n#endif\nint g;\n",
    ],
)
def test_a_new_header_in_an_earlier_folder_is_used(
    by_default: Build, need: Need, tmp_path: Path, source: str
) -> None:
    """ccache by itself would return the old object: it was not asked for."""
    need("ccache")
    first, second = tmp_path / "out/a", tmp_path / "out/b"
    for folder in (first, second):
        folder.mkdir(parents=True)
    if "return H" in source:
        (second / "h.h").write_text("#define H 1\n")
    (by_default.folder / "a.c").write_text(source)
    words = ("gcc", f"-I{first}", f"-I{second}", "-c", "a.c", "-o", "a.o")
    for _ in range(2):
        assert by_default.run(*words).status == 0
    before = (by_default.folder / "a.o").read_bytes()
    (first / "h.h").write_text("#define H 2\n")
    assert by_default.run(*words).status == 0
    assert (by_default.folder / "a.o").read_bytes() != before

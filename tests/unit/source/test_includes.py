"""Which headers a source of a tree includes, itself or by other headers of the tree."""

from pathlib import Path

import pytest

from stoker.source.includes import IncludeSearch

WANTED = {"torch/extension.h"}
FILES = {
    "direct.cu": "#include <torch/extension.h>\n",
    "spaced.cpp": '  #  include "torch/extension.h"  // all of it\n',
    "by_header.cu": '#include "csrc/a.h"\n',
    "csrc/a.h": '#include "b.h"\n',
    "csrc/b.h": '#include "../up.h"\n',
    "up.h": "#include <torch/extension.h>\n",
    "by_folder.cpp": "#include <mine/all.h>\n",
    "include/mine/all.h": "#include <torch/extension.h>\n",
    "circle.cpp": '#include "circle.h"\n',
    "circle.h": '#include "circle.h"\n#include "circle.cpp"\n',
    "narrow.cu": "#include <c10/util/Half.h>\n// #include <torch/extension.h>\n",
}


@pytest.fixture
def includes(tmp_path: Path) -> IncludeSearch:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return IncludeSearch(tmp_path)


@pytest.mark.parametrize("source", ["direct.cu", "spaced.cpp", "by_header.cu"])
def test_headers_are_followed(includes: IncludeSearch, source: str) -> None:
    assert includes.reach(source, (), WANTED)


@pytest.mark.parametrize("source", ["circle.cpp", "narrow.cu", "missing.cu", "/etc/passwd", ""])
def test_other_sources_do_not_include_it(includes: IncludeSearch, source: str) -> None:
    assert not includes.reach(source, (), WANTED)


@pytest.mark.parametrize("flags", [("-Iinclude",), ("-I", "include"), ("-isystem", "include")])
def test_headers_are_found_in_folders_that_the_command_names(
    includes: IncludeSearch, flags: tuple[str, ...]
) -> None:
    assert not includes.reach("by_folder.cpp", (), WANTED)
    assert includes.reach("by_folder.cpp", flags, WANTED)


def test_nothing_outside_of_the_tree_is_read(includes: IncludeSearch, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.h"
    outside.write_text("#include <torch/extension.h>\n")
    (tmp_path / "leaves.cu").write_text(f'#include "../{outside.name}"\n#include "{outside}"\n')
    assert not includes.reach("leaves.cu", (f"-I{tmp_path.parent}",), WANTED)

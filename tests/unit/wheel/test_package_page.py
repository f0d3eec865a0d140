"""The page of the plan of a package."""

from stoker.outside.terminal import rendered
from stoker.wheel.package.page import package_page, packaged_lines
from stoker.wheel.package.values import (
    LibraryChange,
    LibrarySource,
    Licence,
    Packaged,
    PackageMode,
    PackagePlan,
)

PLAN = PackagePlan(
    mode=PackageMode.BUNDLE,
    wheel="built/warm-1.0-py3-none-linux_x86_64.whl",
    file_name="warm-1.0-py3-none-manylinux_2_28_x86_64.whl",
    version="1.0",
    tags=("py3-none-manylinux_2_28_x86_64",),
    changed=(
        *(LibraryChange(path=f"warm/{name}.so", rpath="$ORIGIN:$ORIGIN/lib") for name in "abcdef"),
        LibraryChange(path="warm/g.so", rpath="", needed={"libold.so": "libnew.so"}, strip=True),
    ),
    added=(
        LibraryChange(
            path="warm.libs/libnew.so",
            rpath="$ORIGIN",
            source=LibrarySource(file="nvidia.whl", member="nvidia/libold.so"),
            size_bytes=3 << 20,
        ),
    ),
    requires_added=("torch==2.15.0",),
    requires_dropped=("torch",),
    licences=(Licence(path="nvidia/License.txt", source=LibrarySource(file="/cuda/EULA.txt")),),
    notes=("libold.so opens libmore.so, which was not found",),
)


def text(plan: PackagePlan) -> str:
    return "\n".join(rendered(package_page(plan), 120).splitlines())


def test_a_page_says_everything() -> None:
    assert (
        text(PLAN)
        == """\
warm-1.0-py3-none-manylinux_2_28_x86_64.whl  bundle
from built/warm-1.0-py3-none-linux_x86_64.whl

Bundled libraries: 1, 3.0 MiB
  warm.libs/libnew.so  3.0 MiB  nvidia.whl: nvidia/libold.so

Search path (DT_RPATH)
  warm/a.so, warm/b.so, warm/c.so, warm/d.so and 2 more
    $ORIGIN
    $ORIGIN/lib
  warm/g.so
    none
  warm.libs/libnew.so
    $ORIGIN

Renamed dependencies
  libold.so -> libnew.so  warm/g.so

Stripped
  warm/g.so

Requires-Dist
  - torch
  + torch==2.15.0

Licences
  nvidia/License.txt  /cuda/EULA.txt

note  libold.so opens libmore.so, which was not found
"""
    )


def test_what_does_not_change_is_not_mentioned() -> None:
    plan = PackagePlan(
        mode=PackageMode.PLAIN,
        wheel="a.whl",
        file_name="b.whl",
        version="1",
        tags=("py3-none-any",),
    )
    assert text(plan) == "b.whl  plain\nfrom a.whl\n"


def test_what_was_made() -> None:
    made = Packaged(path="dist/a.whl", size_bytes=5 << 20, debug_files=("a.debug", "b.debug"))
    assert packaged_lines(made) == "dist/a.whl, 5.0 MiB, 2 debug files next to it"

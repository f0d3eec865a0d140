"""Requirement files: what is read from them, and what is refused."""

from pathlib import Path

import pytest

from stoker.catalogue.installing import wanted_by
from stoker.catalogue.requirement_files import read_requirement_file
from stoker.catalogue.values import Host
from stoker.model.errors import UsageError

HOST = Host(os="linux", cpu_family="aarch64", cpu="aarch64", cpu_features=(), python="3.12.4")


def test_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("mill ; python_version < '3'\ntorch==2.13.0\n")
    file = tmp_path / "requirements.txt"
    file.write_text("# wheels\nflash-attn>=2.8  # fast\n\nmill[all] \\\n  ==1.0\n-r more.txt\n")
    found = wanted_by(["Flash_Attn<3"], [file], HOST)
    assert [str(one) for one in found] == ["flash-attn<3,>=2.8", "mill[all]==1.0", "torch==2.13.0"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--index-url https://x.example", "'--index-url' is an option of pip"),
        ("mill @ https://x.example/mill.whl", "is a URL"),
        ("mill ==", "is not a requirement"),
        ("-r requirements.txt", "includes itself"),
        ("-r absent.txt", "absent.txt"),
    ],
)
def test_what_is_refused(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"torch\n{line}\n")
    with pytest.raises(UsageError) as found:
        list(read_requirement_file(file))
    assert message in str(found.value)

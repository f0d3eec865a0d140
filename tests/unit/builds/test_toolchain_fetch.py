"""What the user sees of an installer's output, while it runs and when it fails."""

import importlib.util
import shutil
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.builds.toolchains import fetch
from stoker.builds.toolchains.fetch import Narrator, fetch_failure
from stoker.builds.toolchains.request import parse_request
from stoker.model.errors import CommandError, MissingError, StokerError, StorageError, UsageError

PIP = """\
Looking in links: /mirror
WARNING: Location 'file:///mirror/x/' is ignored: it is neither a file nor a directory.
Processing /mirror/cuda_toolkit-13.0.3.0-py2.py3-none-any.whl (from cuda-toolkit[nvcc]==13.0.*)
Collecting nvidia-nvvm==13.0.88.* (from cuda-toolkit[nvcc]==13.0.*)
  Downloading nvidia_nvvm-13.0.88-py3-none-manylinux2014_x86_64.whl.metadata (1.7 kB)
  Downloading nvidia_nvvm-13.0.88-py3-none-manylinux2014_x86_64.whl (59.2 MB)
Progress 0 of 59234185
Progress 7000000 of 59234185
Progress 8000000 of 59234185
Progress 47000000 of 59234185
Progress 59234185 of 59234185
  Using cached nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_x86_64.whl (134 kB)
Installing collected packages: cuda-toolkit, nvidia-nvvm
Successfully installed cuda-toolkit-13.0.3.0 nvidia-nvvm-13.0.88
"""
UV = """\
Using Python 3.12.1 environment at: /venv
Resolved 6 packages in 300ms
Downloading nvidia-nvvm (56.5MiB)
Installed 6 packages in 20ms
"""
MISSED = "ERROR: Could not find a version that satisfies the requirement "
RETRY = (
    "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'X': /simple/\n"
)


def told(output: str) -> list[str]:
    narrator = Narrator()
    return [message for line in output.splitlines() for message in narrator.hear(line)]


def test_pip_is_cut_to_what_helps() -> None:
    assert told(PIP) == [
        "local: cuda_toolkit 13.0.3.0",
        "downloading: nvidia_nvvm 13.0.88 (56.5 MiB)",
        "  nvidia_nvvm 13.0.88: 10 % of 56.5 MiB",
        "  nvidia_nvvm 13.0.88: 70 % of 56.5 MiB",
        "cached: nvidia_cuda_crt 13.0.88 (131 KiB)",
        "unpacking cuda-toolkit, nvidia-nvvm",
    ]


def test_uv_is_understood_as_well() -> None:
    assert told(UV) == ["downloading: nvidia-nvvm (56.5MiB)"]


def test_a_silent_index_is_told_of() -> None:
    assert told(RETRY) == ["the package index does not answer; trying again"]


@given(st.lists(st.text() | st.sampled_from(PIP.splitlines())))
def test_no_output_makes_it_stumble(lines: list[str]) -> None:
    narrator = Narrator()
    assert all(isinstance(said, str) for line in lines for said in narrator.hear(line))
    assert isinstance(fetch_failure("\n".join(lines), parse_request("cuda==13.0")), StokerError)


@pytest.mark.parametrize(
    ("output", "kind", "message", "hint"),
    [
        (
            f"{MISSED}cuda-toolkit[nvcc]==13.9.* (from versions: 12.9.2, 13.0.0, 13.0.3.0, 13.4.3)",
            UsageError,
            "no cuda==13.9",
            "it has 13.0, 13.4",
        ),
        (f"{RETRY}{MISSED}cuda-toolkit (from versions: none)", MissingError, "reached", "pip"),
        (
            f"{MISSED}nvidia-nvvm==13.9.1.* (from cuda-toolkit[nvvm]) (from versions: none)",
            MissingError,
            f"no nvidia-nvvm==13.9.1.* for this machine ({sys.platform}",
            "",
        ),
        (
            "ERROR: Could not install packages: [Errno 28] No space left on device",
            StorageError,
            "too small",
            "--out",
        ),
        ("error: Failed to fetch: `https://index`", MissingError, "reached", "pip"),
        ("noise\nERROR: something new", CommandError, "could not be installed", ""),
    ],
)
def test_failures_are_fetch_failure(
    output: str, kind: type[StokerError], message: str, hint: str
) -> None:
    error = fetch_failure(output, parse_request("cuda==13.9"))
    assert type(error) is kind
    assert message in error.message
    assert hint in " ".join(error.hints)
    if isinstance(error, CommandError):
        assert error.output == "ERROR: something new"


def test_uv_stands_in_for_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # noqa: ARG005
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert fetch.installer()[:3] == ["/bin/uv", "pip", "install"]
    monkeypatch.setattr(shutil, "which", lambda name: None)  # noqa: ARG005
    with pytest.raises(MissingError, match="neither pip nor uv") as caught:
        fetch.installer()
    assert "ensurepip" in caught.value.hints[0]

"""Requests for toolchains and the installer's requirements."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.builds.toolchains.request import constraints, packages_of, parse_request
from stoker.knowledge.failures import failures
from stoker.knowledge.toolchains import kinds
from stoker.model.errors import StokerError, UsageError

# Without those that take the version from elsewhere: {torch} or $(python -c ...).
_INSTALL = re.compile(r"stoker toolchain install ([\w.=-]+)(?![\w.={$-])")


def test_a_bare_toolchain() -> None:
    request = parse_request("CMake")
    assert (request.name, request.requirement) == ("cmake", "cmake")
    assert packages_of(request) == ("cmake",)
    assert constraints(request) == ()


def test_cuda_with_components() -> None:
    request = parse_request("cuda==13.0.2", ["cudnn==9.13", "nccl", "cufft"])
    assert request.name == "cuda-13.0.2"
    assert packages_of(request) == (
        "cuda-toolkit[cccl,crt,cublas,cudart,cufft,nvcc,nvvm]==13.0.2.*",
        "nvidia-cudnn-cu13==9.13.*",
        "nvidia-nccl-cu13",
    )
    assert constraints(request) == ("nvidia-nvjitlink==13.0.*",)


def test_a_set_stands_for_its_members() -> None:
    components = parse_request("cuda==13.1", ["torch"]).components
    assert {"cublas", "cudnn", "nccl", "nvrtc", "cupti"} <= set(components)
    assert "torch" not in components
    assert list(components) == sorted(components)


@pytest.mark.parametrize(
    ("words", "wanted", "message", "hint"),
    [
        ("cudda==13.0", [], "unknown toolchain 'cudda'", "did you mean cuda?"),
        ("cuda=13.0", [], "cannot read 'cuda=13.0'", "cuda==13.0"),
        ("cuda", [], "which cuda?", ""),
        ("cuda==13", [], "which cuda?", ""),
        ("cuda==12.8", [], "no nvcc", "cuda==13.0"),
        ("cuda==12.8", [], "no nvcc", "conda install -c nvidia/label/cuda-12.8.0 cuda-toolkit"),
        ("cuda==11.8", [], "no nvcc", "cuda==13.0"),
        ("cuda==13.0", ["cubals"], "unknown component of cuda", "cublas"),
        ("cuda==13.0", ["cublas==13"], "follows from that of cuda", "--with cublas"),
        ("cuda==13.0", ["torch==2.9"], "follows from that of cuda", "--with torch"),
        ("ninja", ["cublas"], "unknown component of ninja", "comes as one"),
        ("ninja", [""], "cannot read ''", "NAME"),
    ],
)
def test_what_cannot_be_asked_for(words: str, wanted: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        parse_request(words, wanted)
    assert hint in " ".join(caught.value.hints)


def test_fixes_of_causes_install_what_can_be_installed() -> None:
    commands = [c for cause in failures().values() for fix in cause.fix for c in fix.commands]
    named = [found[1] for c in commands if (found := _INSTALL.search(c))]
    assert "cmake" in named
    for words in named:
        parse_request(words)


@given(st.text(), st.lists(st.text()))
def test_no_words_make_it_stumble(words: str, wanted: list[str]) -> None:
    with suppress(StokerError):
        assert parse_request(words, wanted).kind in kinds()


@given(
    st.lists(st.integers(0, 99), min_size=2, max_size=4).filter(lambda numbers: numbers[0] > 12),
    st.sets(st.sampled_from(kinds()["cuda"].names)),
)
def test_every_component_is_asked_for_once(numbers: list[int], wanted: set[str]) -> None:
    version = ".".join(map(str, numbers))
    request = parse_request(f"cuda=={version}", wanted)
    main, *own = packages_of(request)
    match = re.fullmatch(r"cuda-toolkit\[([a-z,]+)\]==([\d.]+)\.\*", main)
    assert match
    assert match[2] == version
    packages = kinds()["cuda"].packages
    asked = {*match[1].split(","), *(name for name in packages if f"-{name}-" in " ".join(own))}
    assert asked == set(request.components)
    assert len(own) == len(set(own))


def test_the_table_agrees_with_itself() -> None:
    for name, kind in kinds().items():
        components = {*kind.always, *kind.extras, *kind.packages}
        sets = set(kind.brings) - components
        assert not set(kind.extras) & set(kind.packages), name
        assert {part for parts in kind.brings.values() for part in parts} <= components, name
        assert set(kind.environment) <= components, name
        assert all(kind.brings[one] for one in sets), name
        assert re.compile(kind.version.pattern).groups == 1, name
        assert kind.numbers == 0 or kind.oldest, name
        assert bool(kind.host) == bool(kind.proof), name
        assert not kind.stubs or kind.host, name

"""stoker.toml: valid content, and every error with its line."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.model.errors import ExitStatus, StokerError, UsageError
from stoker.settings.toml import FILE_NAME, LocatedValue, find_file, read_file, variant_names

GOOD = """\
# What we build
[defaults]
variant = "native"
source = "../pytorch"   # a comment
features = ["nonccl", "lto"]

[defaults.define]
USE_KINETO = false
"CMAKE_CXX_FLAGS" = "-O3"
ONNX_ML = 1

[variants.h100]
variant = "cu130-sm90-avx512"
description = "our servers"
blas = "openblas"
define = { USE_X = true, RATIO = 0.5 }

[variants."the laptop"]
variant = "native"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / FILE_NAME
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str) -> UsageError:
    with pytest.raises(UsageError) as refused:
        read_file(write(folder, text))
    assert refused.value.status is ExitStatus.USAGE
    return refused.value


def test_a_good_file(tmp_path: Path) -> None:
    file = read_file(write(tmp_path, GOOD))
    assert file.path == str(tmp_path / FILE_NAME)
    assert file.defaults.values == {
        "variant": LocatedValue(value="native", where="stoker.toml:3"),
        "source": LocatedValue(value="../pytorch", where="stoker.toml:4"),
    }
    assert [(said.value, said.where) for said in file.defaults.features] == [
        ("nonccl", "stoker.toml:5"),
        ("lto", "stoker.toml:5"),
    ]
    assert file.defaults.defines == {
        "USE_KINETO": LocatedValue(value="OFF", where="stoker.toml:8"),
        "CMAKE_CXX_FLAGS": LocatedValue(value="-O3", where="stoker.toml:9"),
        "ONNX_ML": LocatedValue(value="1", where="stoker.toml:10"),
    }
    assert list(file.variants) == ["h100", "the laptop"]
    server = file.variants["h100"]
    assert (server.where, server.description) == ("stoker.toml:12", "our servers")
    assert server.values["blas"] == LocatedValue(value="openblas", where="stoker.toml:15")
    assert server.defines["USE_X"].value == "ON"
    assert server.defines["RATIO"].value == "0.5"
    assert server.defines["USE_X"].where == "stoker.toml:16"
    assert file.variants["the laptop"].values["variant"].where == "stoker.toml:19"


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "[defaults]\n", "[variants]\n", "[variants.a]\n"]
)
def test_an_empty_file_says_nothing(tmp_path: Path, text: str) -> None:
    file = read_file(write(tmp_path, text))
    assert file.defaults.values == {}
    assert file.defaults.features == ()


def test_values_that_are_not_text(tmp_path: Path) -> None:
    text = '[defaults]\nmemory = "8G"\nkeep_free = 1024\ncpus = 4\nnice = true\n'
    values = read_file(write(tmp_path, text)).defaults.values
    assert {name: found.value for name, found in values.items()} == {
        "memory": "8G",
        "keep_free": "1024",
        "cpus": "4",
        "nice": "true",
    }


def test_dotted_keys_and_windows_lines(tmp_path: Path) -> None:
    text = 'defaults.variant = "cpu"\r\nvariants.a.blas = "mkl"\r\n'
    file = read_file(write(tmp_path, text))
    assert file.defaults.values["variant"].where == "stoker.toml:1"
    assert file.variants["a"].values["blas"] == LocatedValue(value="mkl", where="stoker.toml:2")


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ('[default]\nvariant = "cpu"\n', 1, "unknown key 'default'", "defaults"),
        ('\n\nvariant = "cpu"\n', 3, "unknown key 'variant'", "variants"),
        ('[defaults]\n\nvarient = "cpu"\n', 3, "unknown key 'varient'", "variant"),
        ('[variants.x]\nblass = "mkl"\n', 2, "unknown key 'blass'", "blas"),
        ("[variants.x]\ndefines = {A = 1}\n", 2, "unknown key 'defines'", "define"),
        ('[variants]\nx = { feature = ["a"] }\n', 2, "unknown key 'feature'", "features"),
        ('[variants."a b"]\n\n\nsanitiser = "asan"\n', 4, "'sanitiser'", "sanitizer"),
    ],
)
def test_an_unknown_key(tmp_path: Path, text: str, line: int, message: str, hint: str) -> None:
    error = refusal(tmp_path, text)
    assert error.where == f"stoker.toml:{line}"
    assert message in error.message
    assert hint in " ".join(error.hints)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[defaults]\nvariant = 130\n", 2, "'defaults.variant' must be text in quotes"),
        ("[defaults]\npython = 3.12\n", 2, "'defaults.python' must be text in quotes"),
        ("[defaults]\npython = ['3.12', 3.13]\n", 2, "'defaults.python' must be text in quotes"),
        ('[defaults]\nfeatures = "nccl"\n', 2, "must be a list of words"),
        ("[defaults]\nfeatures = [1]\n", 2, "must be text in quotes"),
        ('[defaults]\ndefine = "USE_X=1"\n', 2, "'defaults.define' must be a table"),
        ("[defaults.define]\nA = [1]\n", 2, "must be text, a number or true/false"),
        ("[defaults.define]\nA = 2024-01-01\n", 2, "must be text, a number or true/false"),
        ("[defaults.define]\n\n[defaults.define.B]\n", 3, "'defaults.define.B' must be text"),
        ("defaults = 1\n", 1, "'defaults' must be a table"),
        ('variants = ["a"]\n', 1, "'variants' must be a table"),
        ('[variants]\nh100 = "cu130"\n', 2, "'variants.h100' must be a table"),
        ("[[variants]]\nname = 'a'\n", 1, "'variants' must be a table"),
        ("[variants.a]\ndescription = 1\n", 2, "'variants.a.description' must be text"),
        ("[variants.a]\nblas = true\n", 2, "'variants.a.blas' must be text"),
        ("[defaults]\nmemory = 1.5\n", 2, "'defaults.memory' must be an amount of memory"),
        ("[defaults]\ncpus = true\n", 2, "'defaults.cpus' must be a whole number"),
        ("[defaults]\nnice = 1\n", 2, "'defaults.nice' must be true or false"),
    ],
)
def test_a_wrong_type(tmp_path: Path, text: str, line: int, message: str) -> None:
    error = refusal(tmp_path, text)
    assert error.where == f"stoker.toml:{line}"
    assert message in error.message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[defaults]\nvariant = cpu\n", 2),
        ("[defaults\n", 1),
        ("[defaults]\n[defaults]\n", 2),
        ("[defaults]\nblas = 'a'\nblas = 'b'\n", 3),
        ('[defaults]\nvariant = "cpu', 2),
        ("[defaults]\nvariant =", 2),
        ("[defaults]\nfeatures = [\n'a',", 3),
        ("\x00", 1),
    ],
)
def test_what_is_not_toml_has_its_line(tmp_path: Path, text: str, line: int) -> None:
    error = refusal(tmp_path, text)
    assert error.message.startswith("not valid TOML")
    assert error.where == f"stoker.toml:{line}"


def test_a_line_inside_a_text_is_not_taken_for_a_key(tmp_path: Path) -> None:
    text = '[variants.a]\ndescription = """\nblas = 1\n[defaults]\n"""\nblas = 2\n'
    assert refusal(tmp_path, text).where == "stoker.toml:6"


def test_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(b"[defaults]\nvariant = '\xff'\n")
    with pytest.raises(UsageError) as refused:
        read_file(path)
    assert "UTF-8" in refused.value.message
    assert refused.value.where == "stoker.toml"


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    for path in (tmp_path / FILE_NAME, tmp_path / "absent.toml"):
        with pytest.raises(UsageError, match=f"'{path}'"):
            read_file(path)


@pytest.mark.parametrize(
    "text",
    [
        "[defaults.define]\nA = " + "9" * 5000 + "\n",
        "x = " + "[" * 5000,
        "[defaults]\nx = " + "{a=" * 3000,
        "a" + ".a" * 2000 + " = 1\n",
    ],
    ids=["a long number", "deep lists", "deep tables", "a deep key"],
)
def test_a_monstrous_file_is_refused_in_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(StokerError):
        read_file(write(tmp_path, text))


KEYS = st.sampled_from(
    [
        "variant",
        "blas",
        "features",
        "define",
        "description",
        "defaults",
        "variants",
        "USE_X",
        '"a b"',
        "x.y",
    ]
)
SCALARS = st.sampled_from(
    ["'cpu'", '"nccl"', "1", "1.5", "true", "nan", "2024-01-01", "[]", "['a']", "[1]", "{}"]
)
LINES = st.one_of(
    st.builds("{} = {}".format, KEYS, SCALARS),
    st.builds("{} = {{ {} = {} }}".format, KEYS, KEYS, SCALARS),
    st.builds("[{}]".format, KEYS),
    st.builds("[{}.{}]".format, KEYS, KEYS),
    st.builds("[[{}]]".format, KEYS),
    st.text(max_size=10),
    st.sampled_from(["", "# comment", "'''", '"""', "]", "="]),
)


@given(st.lists(LINES, max_size=8).map("\n".join) | st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        file = read_file(path)
    except StokerError:
        return
    for entry in (file.defaults, *file.variants.values()):
        for said in (*entry.values.values(), *entry.features, *entry.defines.values()):
            assert said.where.startswith(FILE_NAME)


def test_the_nearest_file_above_is_found(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    top = write(tmp_path, "")
    assert find_file(deep) == top
    near = write(tmp_path / "a" / "b", "")
    assert find_file(deep) == near
    assert find_file(tmp_path) == top


def test_a_folder_of_that_name_is_not_the_file(tmp_path: Path) -> None:
    (tmp_path / "a" / FILE_NAME).mkdir(parents=True)
    top = write(tmp_path, "")
    assert find_file(tmp_path / "a") == top


@pytest.mark.parametrize(
    ("text", "pythons"), [('"3.12"', ["3.12"]), ('["3.12", "3.11"]', ["3.12", "3.11"]), ("[]", [])]
)
def test_one_python_or_several(tmp_path: Path, text: str, pythons: list[str]) -> None:
    """A matrix takes all of them, and one build takes the first."""
    table = read_file(write(tmp_path, f"[variants.a]\npython = {text}\n")).variants["a"]
    assert [python.value for python in table.pythons] == pythons
    first = table.values.get("python")
    assert (first.value if first else None) == (pythons[0] if pythons else None)


@pytest.mark.parametrize(
    ("only", "found"),
    [
        ("", ("cu128-sm80", "cu128-sm90", "cpu[1]")),
        ("sm", ("cu128-sm80", "cu128-sm90")),
        ("cu*90", ("cu128-sm90",)),
        ("?pu*", ("cpu[1]",)),
        ("*", ("cu128-sm80", "cu128-sm90", "cpu[1]")),
    ],
)
def test_names_by_a_part_or_a_pattern(tmp_path: Path, only: str, found: tuple[str, ...]) -> None:
    names = ("cu128-sm80", "cu128-sm90", "cpu[1]")
    path = write(tmp_path, "".join(f'[variants."{name}"]\n' for name in names))
    assert variant_names(path, only) == found


def test_names_that_are_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, "[variants.h100]\n")
    with pytest.raises(UsageError, match="unknown variant 'h20'"):
        variant_names(path, "h20")
    with pytest.raises(UsageError, match=r"stoker\.toml has no variants"):
        variant_names(write(tmp_path, ""))
    with pytest.raises(UsageError, match=r"there is no stoker\.toml"):
        variant_names(None)

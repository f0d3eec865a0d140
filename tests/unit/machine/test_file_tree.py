from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stoker.machine.file_tree import FileTree, newest_first
from stoker.model.value import whole_number


def test_a_file_that_is_not_there_is_no_matter_for_a_note(tmp_path: Path) -> None:
    tree = FileTree(tmp_path)
    (tmp_path / "file").write_text("")
    assert tree.text("/none") is None
    assert tree.text("/file/below") is None
    assert tree.open("/none") is None
    assert tree.notes == ()


def test_one_that_cannot_be_read_is_noted_once(tmp_path: Path) -> None:
    tree = FileTree(tmp_path)
    (tmp_path / "folder").mkdir()
    assert tree.text("/folder") is None
    assert tree.text("/folder") is None
    assert tree.notes == ("cannot read /folder: Is a directory",)


def test_a_name_with_a_nul_is_noted(tmp_path: Path) -> None:
    tree = FileTree(tmp_path)
    assert tree.text("/a\0b") is None
    assert not tree.exists("/a\0b")
    assert len(tree.notes) == 1


def test_an_open_file_tells_what_is_in_it_now(tmp_path: Path) -> None:
    (tmp_path / "limit").write_text("12\n")
    file = FileTree(tmp_path).open("/limit")
    assert file is not None
    assert file.number() == 12
    (tmp_path / "limit").write_text("345\n")
    assert file.number() == 345
    file.close()


def test_what_is_no_number_is_noted(tmp_path: Path) -> None:
    tree = FileTree(tmp_path)
    (tmp_path / "limit").write_text("1_000\n")
    file = tree.open("/limit")
    assert file is not None
    assert file.number() is None
    assert tree.notes == ("/limit holds no number: '1_000'",)
    file.close()


@given(st.text())
def test_only_plain_digits_are_a_number(text: str) -> None:
    number = whole_number(text)
    assert number is None or text.lstrip("0") in (str(number), "")


def test_newest_first() -> None:
    names = ["cuda-9.2", "cuda-12.9", "cuda-12.10", "cuda"]
    assert [path.name for path in newest_first(map(Path, names))] == [
        "cuda-12.10",
        "cuda-12.9",
        "cuda-9.2",
        "cuda",
    ]

"""The names that modules of Python have, read without importing them."""

from python_names import module_of, python_names


def test_modules_have_what_they_define_and_import() -> None:
    files = {
        "mill/__init__.py": b"from .wheel import *\nfrom mill.stone import Stone as S\nimport os\n",
        "mill/wheel.py": b"def grind(): pass\n_own = 1\ntry:\n  import x\nexcept E:\n  fine = 2\n",
        "mill/stone.py": b"class Stone: pass\n",
        "mill/broken.py": b"def (",
        "mill/data.txt": b"",
    }
    names = python_names(files, (3, 12))
    assert {"mill", "mill.grind", "mill.S", "mill.fine", "mill.wheel._own"} <= names
    assert not {"mill._own", "mill.os", "mill.broken", "mill.stone.S"} & names


def test_stubs_come_before_modules_and_depend_on_the_python() -> None:
    stub = b"import sys\nif sys.version_info >= (3, 12):\n  new: int\nelse:\n  old: int\n"
    files = {"mill.pyi": stub, "mill.py": b"other = 1"}
    assert python_names(files, (3, 12)) == {"mill", "mill.new"}
    assert python_names(files, (3, 11)) == {"mill", "mill.old"}


def test_only_files_of_python_are_modules() -> None:
    assert module_of("a/b/__init__.py") == "a.b"
    assert module_of("a/b-c.py") is None
    assert module_of("a/b.so") is None

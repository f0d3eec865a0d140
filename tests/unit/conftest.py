"""For all unit tests: every process that stoker's own code starts goes through
``outside/process.py``.
"""

import sys
from pathlib import Path

import stoker
from scripted_governor import world as world

_SOURCES = str(Path(stoker.__file__).parent)
_DOOR = str(Path(_SOURCES, "outside", "process.py"))
_STARTS = ("subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system")


def _watch(event: str, _: tuple[object, ...]) -> None:
    if not _STARTS or event not in _STARTS:  # this module is already empty when Python ends
        return
    frame = sys._getframe(1)
    while frame and not frame.f_code.co_filename.startswith(_SOURCES):
        if frame.f_back is None:
            return  # a test started it
        frame = frame.f_back
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    assert frame.f_code.co_filename == _DOOR, f"{where} starts a process by itself"


sys.addaudithook(_watch)

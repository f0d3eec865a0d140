"""stoker feeds a build exactly as much as the machine can take."""

import sys
from types import ModuleType

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from stoker.api import diagnose as diagnose
    from stoker.api import history as history
    from stoker.api import inspect as inspect
    from stoker.api import plan as plan
    from stoker.api import run as run
    from stoker.api import steps as steps

__version__ = "0.1.0"
_FUNCTIONS = ("diagnose", "history", "inspect", "plan", "run", "steps")


class _Interface(ModuleType):
    """This module. Its functions are imported when they are first used, because every command
    imports it. The packages ``plan`` and ``diagnose`` do not replace the functions of these names.
    """

    def __getattr__(self, name: str) -> object:
        if name not in _FUNCTIONS:
            raise AttributeError(f"module 'stoker' has no attribute {name!r}")
        from stoker import api

        return getattr(api, name)

    def __dir__(self) -> list[str]:
        own = (name for name in super().__dir__() if name.startswith("__"))
        return sorted({*own, *_FUNCTIONS})

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _FUNCTIONS or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Interface

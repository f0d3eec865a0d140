"""stoker feeds a build exactly as much as the machine can take."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.api import diagnose as diagnose
    from stoker.api import history as history
    from stoker.api import inspect as inspect
    from stoker.api import plan as plan
    from stoker.api import run as run
    from stoker.api import steps as steps

__version__ = "0.1.0"
_FUNCTIONS = ("diagnose", "history", "inspect", "plan", "run", "steps")


def __getattr__(name: str) -> Any:
    """Import a function of the Python interface when it is first used: every command imports this
    module.
    """
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    from stoker import api

    return getattr(api, name)

"""What `stoker diagnose --try` tries where no message of a log names the cause."""

from stoker.knowledge import Row, rows
from stoker.model.shell import Template


class SuspectedCause(Row, frozen=True, kw_only=True):
    """A cause that is tried if a pattern is in the log; by its own fixes, or by these commands."""

    cause: str
    seen: str
    text: str = ""
    commands: tuple[Template, ...] = ()


suspected_causes = rows("suspects", SuspectedCause)

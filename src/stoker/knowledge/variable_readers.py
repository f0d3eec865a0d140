"""Which tool reads a variable of the environment, and how a log shows that the tool was there."""

from stoker.knowledge import Row, table


class _Reader(Row, frozen=True, kw_only=True):
    variables: tuple[str, ...]  # how their names begin
    shown: tuple[str, ...]


class _Readers(Row, frozen=True, kw_only=True):
    others: tuple[str, ...]
    reader: tuple[_Reader, ...]


_readers = table("variable_readers", _Readers)


def shows_reader(variable: str) -> tuple[str, ...] | None:
    """Return texts that show in a log that the tool that reads a variable was there; ``None`` for
    a variable that no single tool reads.
    """
    readers = (one for one in _readers().reader if variable.startswith(one.variables))
    return next((one.shown for one in readers), None)


def shows_build_tool() -> tuple[str, ...]:
    """Return texts that show in a log by which tool the build ran."""
    return _readers().others

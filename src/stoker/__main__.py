"""The entry point of the command. Errors become messages and exit statuses here."""

import atexit
import errno
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

    from stoker.model.errors import StokerError

_COLLECT_EVERY = 100_000  # new objects; imports create almost as many, and they all stay


def program() -> int:
    """Run the command line as a process of its own, and return its exit status."""
    ended: list[int] = []
    atexit.register(_leave, ended)  # the first one that is registered is called last
    ended.append(main())
    return ended[0]


def _leave(ended: list[int]) -> None:
    """End the process without the last part of Python's exit, which takes every module apart: a
    tenth of the time of a short command. Threads have ended, and all other handlers were called.
    """
    if ended:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception, SystemExit):  # an output that is closed was reported by then
                stream.flush()
        os._exit(ended[0])


def main() -> int:
    """Run the command line; every user error is caught and printed here, once."""
    gc.set_threshold(_COLLECT_EVERY)
    from stoker.model.errors import ExitStatus, OutputClosed, StokerError, Terminated
    from stoker.outside import streams

    streams.prepare_streams()
    streams.results.clear()
    try:
        status = int(_call() or ExitStatus.OK)
        streams.finish_output()  # here, where an error can still be reported
    except StokerError as error:
        return _tell(error)
    except KeyboardInterrupt:
        sys.stderr.write("\nstoker: interrupted\n")
        return ExitStatus.INTERRUPTED
    except Terminated as ended:
        sys.stderr.write("\nstoker: interrupted\n")
        return ended.status
    except OutputClosed:
        return ExitStatus.OK
    except OSError as error:
        return _tell(_refused(error))
    return status


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, which takes longer to import than msgspec itself.
    Where it is missing, msgspec uses typing, which has the same since Python 3.11.
    """
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
        import msgspec  # noqa: F401

        del sys.modules["typing_extensions"]


def _call() -> int | None:
    """Call the command that the arguments name. The usual arguments of `stoker run` are read
    without click, so that it starts sooner.
    """
    if sys.argv[1:2] == ["run"]:
        _import_msgspec()
        from stoker.cli.governed import read_arguments, run_governed

        if arguments := read_arguments(sys.argv[2:]):
            return run_governed(**arguments)
    import click

    from stoker.cli.root import command

    try:
        status: int | None = command.main(prog_name="stoker", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        from stoker.model.errors import ExitStatus
        from stoker.outside.streams import write_own

        write_own(sys.stderr, f"{error.format_message()}\n")
        status = ExitStatus.USAGE
    except click.ClickException as error:
        raise _usage_error(error) from error
    except click.Abort:
        raise KeyboardInterrupt from None
    return status


def _tell(error: "StokerError") -> int:
    """Print an error, also as JSON if the command was asked for JSON; return the exit status."""
    from stoker.model.errors import OutputClosed, StokerError
    from stoker.outside.streams import results
    from stoker.outside.terminal import print_error_json, tell_error

    tell_error(error)
    if "--json" in _own_arguments() and not results:
        with suppress(StokerError, OutputClosed):  # the error itself was printed
            print_error_json(error)
    return error.status


def _own_arguments() -> list[str]:
    """Return our arguments without the command that `stoker run` starts."""
    arguments = sys.argv[1:]
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _usage_error(error: "click.ClickException") -> "StokerError":
    """Return a wrong argument, which click found, as an error of ours."""
    import click

    from stoker.model.errors import UsageError, nearest

    context = getattr(error, "ctx", None)
    path = context.command_path if context else "stoker"
    hints = [f"`{path} --help` lists the options"]
    message = error.format_message().rstrip(".").replace(". Choose from:", ":")
    message = " ".join(message.split()) if isinstance(error, click.MissingParameter) else message
    if isinstance(error, click.NoSuchOption) and context:
        message = f"there is no option {error.option_name}"
        names = [name for param in context.command.params for name in param.opts]
        near = nearest(error.option_name, names)
        hints[:0] = [f"did you mean {' or '.join(near)}?"] if near else []
    return UsageError(message[:1].lower() + message[1:], hints=hints)


def _refused(error: OSError) -> "StokerError":
    """Return why the system refuses a name that the user gave. Raise any other error, which is a
    bug.
    """
    from stoker.model.errors import UsageError
    from stoker.outside.folders import unwritable

    if error.errno == errno.ENAMETOOLONG:
        return UsageError(f"{error.strerror}: {str(error.filename)[:80]}...")
    if isinstance(error, PermissionError) and error.filename:
        return unwritable(Path(str(error.filename)), error, doing="access")
    raise error


if __name__ == "__main__":
    sys.exit(program())

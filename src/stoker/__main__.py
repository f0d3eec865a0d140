"""The entry point of the command. Errors become messages and exit statuses here."""

import atexit
import errno
import gc
import sys
from pathlib import Path

_COLLECT_EVERY = 100_000  # new objects; imports create almost as many, and they all stay


def main() -> int:
    """Run the command line; every user error is caught and printed here, once."""
    gc.set_threshold(_COLLECT_EVERY)
    atexit.register(gc.freeze)  # Python would examine every object again at exit
    import click

    from stoker.cli import command
    from stoker.model.errors import ExitStatus, OutputClosed, StokerError, Terminated
    from stoker.outside import terminal

    terminal.prepare_streams()
    try:
        status = int(command.main(prog_name="stoker", standalone_mode=False) or ExitStatus.OK)
        terminal.finish_output()  # here, where an error can still be reported
    except StokerError as error:
        from stoker.outside.terminal import error_text

        sys.stderr.write(error_text(error))
        return error.status
    except click.ClickException as error:  # wrong arguments; click prints the message, status 2
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("\nstoker: interrupted\n")
        return ExitStatus.INTERRUPTED
    except Terminated as ended:
        sys.stderr.write("\nstoker: interrupted\n")
        return ended.status
    except OutputClosed:
        return ExitStatus.OK
    except OSError as error:
        return _refused(error)
    return status


def _refused(error: OSError) -> int:
    """Print why the system refuses a name that the user gave; return the exit status. Raise any
    other error, which is a bug.
    """
    from stoker.model.errors import ExitStatus
    from stoker.outside.folders import unwritable
    from stoker.outside.terminal import error_text

    if error.errno == errno.ENAMETOOLONG:
        sys.stderr.write(f"stoker: {error.strerror}: {str(error.filename)[:80]}...\n")
        return ExitStatus.USAGE
    if isinstance(error, PermissionError) and error.filename:
        reason = unwritable(Path(str(error.filename)), error, doing="access")
        sys.stderr.write(error_text(reason))
        return ExitStatus.STORAGE
    raise error


if __name__ == "__main__":
    sys.exit(main())

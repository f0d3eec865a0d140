"""The command's entry: one place where errors become words and exit statuses."""

import atexit
import errno
import gc
import sys

_COLLECT_EVERY = 100_000  # new objects; imports make almost as many, and all of them stay


def main() -> int:
    """Run the command line; every user error is caught and printed here, once."""
    gc.set_threshold(_COLLECT_EVERY)
    atexit.register(gc.freeze)  # at its end Python would look at every object once more
    import click

    from stoker.cli import command
    from stoker.model.errors import ExitStatus, StokerError, Terminated
    from stoker.outside import console

    console.prepare()
    try:
        status = int(command.main(prog_name="stoker", standalone_mode=False) or ExitStatus.OK)
        console.finish()  # here, where an error can still be told
    except StokerError as error:
        from stoker.report import error_text

        sys.stderr.write(error_text(error))
        return error.status
    except click.ClickException as error:  # wrong arguments: click says which, with status 2
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("\nstoker: interrupted\n")
        return ExitStatus.INTERRUPTED
    except Terminated as ended:
        sys.stderr.write("\nstoker: interrupted\n")
        return ended.status
    except BrokenPipeError:
        # The reader of our output went away (`stoker options | head`): not an error of ours.
        return ExitStatus.OK
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        # A word that was looked for as a file, and longer than the name of any file.
        sys.stderr.write(f"stoker: {error.strerror}: {str(error.filename)[:80]}...\n")
        return ExitStatus.USAGE
    return status


if __name__ == "__main__":
    sys.exit(main())

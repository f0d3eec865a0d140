"""The command's entry: one place where errors become words and exit statuses."""

import sys


def main() -> int:
    """Run the command line; every user error is caught and printed here, once."""
    from stoker.model.errors import ExitStatus, StokerError

    try:
        from stoker.cli import command

        # click itself ends with status 2 for wrong arguments, 0 after --help.
        return int(command.main(standalone_mode=False) or ExitStatus.OK)
    except StokerError as error:
        from stoker.report.errors import error_text

        sys.stderr.write(error_text(error))
        return error.status
    except KeyboardInterrupt:
        sys.stderr.write("\nstoker: interrupted\n")
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`stoker options | head`): not an error of ours.
        sys.stderr.close()
        return ExitStatus.OK


if __name__ == "__main__":
    sys.exit(main())

"""Programs with stoker's library preloaded, and a record of what they governed."""

import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from unit.launcher.scripted import Word

# Writes down its own words in one piece, then becomes the real launcher. A custom command is
# started by itself, and a compile that comes back from its identification is written down once.
STAND_IN = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
    size_t size = 2;
    for (int i = 1; i < count; i++)
        size += strlen(words[i]) + 1;
    char *line = calloc(1, size), *end = line;
    for (int i = 1; i < count; i++)
        end = stpcpy(stpcpy(end, words[i]), "\x1f");
    *end++ = '\x1e';
    if (getenv("STOKER_KEYS_SOUGHT") && !getenv("STOKER_WRAPPED"))
        line = end = 0;
    int log = open(getenv("STOKER_TEST_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (log < 0 || write(log, line, end - line) != end - line)
        return 99;
    if (strcmp(words[1], "--custom") == 0)
        execv(words[2], words + 2);
    words[0] = getenv("STOKER_TEST_LAUNCHER");
    execv(words[0], words);
    return 98;
}
"""


# A stand-in for a cache calls this, so that the launcher that started it counts as no step.
OFFERED = "cache"
TAKE = """
#include <stdio.h>
#include <stdlib.h>
static void take(void)
{
    FILE *steps = fopen(getenv("STOKER_TEST_LOG"), "a");
    fprintf(steps, "cache\\x1e");
    fclose(steps);
}
"""


def build(folder: Path, name: str, source: str, *options: str, compiler: str = "cc") -> Path:
    """Return a C program from its text in a folder; each text is compiled once."""
    (folder / name).write_bytes(_compiled(source, options, compiler))
    (folder / name).chmod(0o755)
    return folder / name


@cache
def _compiled(source: str, options: tuple[str, ...], compiler: str) -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder, "program.c")
        file.write_text(source)
        subprocess.run([compiler, "-w", file, "-o", file.with_suffix(""), *options], check=True)
        return file.with_suffix("").read_bytes()


class Preloaded:
    """``environment`` is what `stoker run` would set, for a launcher that writes down its words."""

    def __init__(self, launcher: Path, stand_in: Path, folder: Path):
        self.folder = folder
        link = folder / "libasan.so-libclang_rt.asan"  # see test_programs_with_sanitizers
        link.symlink_to(launcher.parent)
        self.library = link / "libstoker-preload.so"
        self._log = folder / "governed.log"
        self.environment = {
            **{key: text for key, text in os.environ.items() if not key.startswith("STOKER_")},
            "STOKER_LAUNCHER": str(stand_in),
            "STOKER_TEST_LAUNCHER": str(launcher),
            "STOKER_TEST_LOG": str(self._log),
            "LD_PRELOAD": str(self.library),
            "CCACHE_DIR": str(folder / "ccache"),
            "LC_ALL": "C",
        }

    def run(self, *command: Word, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [os.fspath(word) for word in command],
            cwd=cwd or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    def output(self, *command: Word, cwd: Path | None = None) -> str:
        """Of a command that succeeds and has nothing to complain about."""
        done = self.run(*command, cwd=cwd)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def governed(self) -> list[list[str]]:
        """The words that launchers were given since the last call, and did not give to a cache."""
        if not self._log.exists():
            return []
        records = self._log.read_text().split("\x1e")[:-1]
        self._log.unlink()
        steps: list[list[str]] = []
        for record in records:
            words = record.split("\x1f")[:-1]
            if record == OFFERED:
                del steps[-1:]  # none, if the cache was started past the library
            else:
                steps.append(words[1:] if words[0] == "--cached" else words)
        return steps

    def outputs(self) -> list[str]:
        """What the governed commands were to make, by name."""
        return sorted(_value(words, "-o") for words in self.governed())


def _value(words: Iterable[str], option: str) -> str:
    following = iter(words)
    for word in following:
        if word == option:
            return Path(next(following)).name
    return ""


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path

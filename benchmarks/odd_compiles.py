"""Compiles that a governor or a cache may get wrong: from streams, with response files, by scripts
that change, as another user, one at a time. ``torture.py`` runs them under faults.

Each way is a shell script that makes objects. All run at once, first plainly, and the objects of
the governed run must be the same. Sources are large, so that steps are paused and repeated.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

COMPILE = "g++ -O1 -x c++ -c"
# Every way runs in a folder of its own, with the sources in ../sources and $CHANGED as its state.
WAYS: dict[str, str] = {
    "pipe": f"cat ../sources/$N.cpp | {COMPILE} - -o pipe.o",
    "stdin": f"{COMPILE} - -o stdin.o < ../sources/$N.cpp",
    "shared-offset": (
        f"{{ {COMPILE} - -o first.o; {COMPILE} - -o second.o; }} < ../sources/$N.cpp"
    ),
    "fifo": f"mkfifo -m 666 p; cat ../sources/$N.cpp > p & {COMPILE} p -o fifo.o && wait $!",
    "dev-fd": f"{COMPILE} /dev/fd/3 -o fd.o 3< ../sources/$N.cpp",
    "to-stdout": "echo old > all.o; g++ -S -O1 ../sources/$N.cpp -o /dev/stdout >> all.o",
    "stdout-option": "g++ -S -O1 ../sources/$N.cpp -o - > all.o",
    "full-stdout": "! g++ -S -O1 ../sources/$N.cpp -o - > /dev/full 2> log && echo x > full.o",
    "links-and-mode": (
        "echo old > one.o; chmod 600 one.o; ln one.o two.o; g++ -S -O1 ../sources/$N.cpp -o one.o "
        "&& cmp one.o two.o && test $(stat -c %a one.o) = 600"
    ),
    "appended-list": "g++ -O2 -fopt-info-optimized-missed=list.o -c ../sources/$N.cpp -o i.o",
    "clang": (
        "! command -v clang++ > /dev/null || "
        "{ clang++ -O1 -c ../sources/$N.cpp -o clang.o && ! ls *.tmp 2> /dev/null; }"
    ),
    "response-file": (
        "echo '-O1 -c' > more; echo \"@more ../sources/$N.cpp -o response.o\" > words; g++ @words"
    ),
    "response-stdin": (
        "echo '-x c++ - -c -o response.o' > words; g++ -O1 @words < ../sources/$N.cpp"
    ),
    "empty-environment": (
        'env -i PATH="$PATH" sh -c \'mktemp > name; g++ -O1 -c ../sources/$0.cpp -o empty.o && '
        "test -e $(cat name)' $N && rm $(cat name) && rm name"
    ),
    "one-job": (
        "printf 'all: a.o b.o\\na.o:\\n\\tg++ -O1 -c ../sources/%s.cpp -o a.o\\n"
        "b.o:\\n\\ttest -s a.o && cp a.o b.o\\n' $N > Makefile; sh -c 'make -j1'"
    ),
    "another-user": (
        "chmod 777 .; setpriv --reuid=65534 --clear-groups "
        "sh -c 'HOME=/nonexistent g++ -O1 -c ../sources/$0.cpp -o user.o' $N"
    ),
    # The compiler is a script, whose text changes between two runs.
    "wrapper-text": (
        "mkdir -p bin; printf '#!/bin/sh\\nexec g++ -O%s \"$@\"\\n' $CHANGED > bin/c++;"
        "chmod 755 bin/c++; touch -d 2001-01-01 bin/c++; bin/c++ -c ../sources/$N.cpp -o text.o"
    ),
    "wrapper-file": (
        "mkdir -p bin; printf '#!/bin/sh\\nexec g++ $(cat ${0%%/*}/flags) \"$@\"\\n' > bin/c++;"
        "chmod 755 bin/c++; echo -O$CHANGED > bin/flags; touch -d 2001-01-01 bin/c++ bin/flags;"
        "bin/c++ -c ../sources/$N.cpp -o file.o"
    ),
    "wrapper-link": (
        "mkdir -p bin/$CHANGED; printf '#!/bin/sh\\nexec g++ -O%s \"$@\"\\n' $CHANGED "
        "> bin/$CHANGED/c++; chmod 755 bin/$CHANGED/c++; ln -sfn $CHANGED/c++ bin/c++;"
        "touch -d 2001-01-01 bin/$CHANGED/c++; bin/c++ -c ../sources/$N.cpp -o link.o"
    ),
    # A header is replaced by one with an older time, as mv, cp -p, tar and rsync -t do.
    "old-header": (
        'mkdir -p include; echo "#define SAID $CHANGED" > new.h; touch -d 2001-01-01 new.h;'
        "mv new.h include/said.h;"
        "printf '#include <said.h>\\n#include \"../sources/%s.cpp\"\\n' $N > a.cpp;"
        "echo 'int said = SAID;' >> a.cpp;"
        "touch -d 2000-01-01 a.cpp; g++ -O1 -isystem include -c a.cpp -o header.o"
    ),
    # Changes that the list of headers does not show; tests/changes.py has more kinds.
    "system-header": (
        'mkdir -p include; echo "#define SAID $CHANGED" > include/said.h;'
        "printf '#include <said.h>\\nint said = SAID;\\n' > a.cpp;"
        "touch -d 2001-01-01 include/said.h a.cpp;"
        "g++ -MMD -MF a.d -isystem include -c a.cpp -o system.o"
    ),
    "included-by-assembler": (
        'echo ".long $CHANGED" > more; echo \'.include "more"\' > a.S;'
        "touch -d 2001-01-01 more a.S; gcc -MD -MF a.d -c a.S -o assembled.o"
    ),
}

LARGE = ("pipe", "fifo", "response-file", "links-and-mode", "clang")

Run = Callable[[list[str], Mapping[str, str]], int | None]


def script(folder: Path, sources: Path, heavy: int, light: int, *, as_root: bool) -> list[str]:
    """Return a command that runs all ways at once; it fails if one of them does."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    link = folder / "sources"
    if not link.is_symlink():
        link.symlink_to(sources)
    lines = []
    for number, (name, text) in enumerate(WAYS.items()):
        if name == "another-user" and not as_root:
            continue
        (folder / name).mkdir(exist_ok=True)
        # Two of the large steps do not fit at once; the others are soon done.
        source = f"part_{number % heavy if name in LARGE else heavy + number % light}"
        begin = f"cd {name} && rm -f *.o p && export N={source}"
        lines.append(f"( {begin} && {{ {text}; }} ) || echo {name} >> failed &")
    (folder / "ways.sh").write_text(
        "\n".join(
            ["rm -f failed", *lines, "wait", "test ! -e failed || { cat failed; exit 1; }", ""]
        )
    )
    return ["sh", "-c", 'cd "$0" && sh ways.sh', str(folder)]


def objects(folder: Path) -> dict[str, str]:
    """Return the digest of each object."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.o"))
    }


def references(folder: Path, sources: Path, heavy: int, light: int) -> dict[str, dict[str, str]]:
    """Run all ways plainly, in both states; return the objects of each state."""
    found = {}
    for changed in ("0", "2"):
        command = script(folder, sources, heavy, light, as_root=os.geteuid() == 0)
        subprocess.run(command, env={**os.environ, "CHANGED": changed}, check=True)
        found[changed] = objects(folder)
    return found


def check(
    folder: Path,
    sources: Path,
    heavy: int,
    light: int,
    *,
    expected: Mapping[str, Mapping[str, str]],
    run: Run,
) -> list[str]:
    """Run all ways governed, in both states and twice each; return what was wrong."""
    wrong = []
    for changed in ("0", "2", "0"):
        command = script(folder, sources, heavy, light, as_root=os.geteuid() == 0)
        status = run(command, {"CHANGED": changed})
        if status != 0:
            wrong.append(f"odd compiles ended with {status}")
            continue
        made = objects(folder)
        differing = [
            name for name in expected[changed] if made.get(name) != expected[changed][name]
        ]
        if differing:
            wrong.append(f"objects differ: {', '.join(differing)}")
    return wrong

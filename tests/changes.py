"""Changes between two compiles that a cache must notice, for benchmarks/cache_truth.py and tests.

A change has two states, 0 and 2. Its files are written before the compile, with the state in place
of each "%". ``compile`` is a shell command that makes $OUT with $CC and $LIST, the options by which
the compiler lists the headers that it reads; "a.X" is the source.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HOST = ("gcc", "clang")
NVCC = ("nvcc",)
COMPILERS = (*HOST, *NVCC)
LISTS = {"-MD": "-MD -MF list.d", "-MMD": "-MMD -MF list.d", "none": ""}
STATES = (0, 2)
OLD = 978_307_200.0  # the time of every file, as tar, rsync -t and cp -p set it

_OWN = {"clang": "-fno-integrated-as"}  # what a compiler needs to start the assembler
_TEMPORARY = re.compile(rb"tmpxft_[0-9a-f]{8}_[0-9a-f]{8}")  # nvcc names a symbol after it

# A clang that knows #embed.
_EMBEDS = next((name for name in ("clang-19", "clang-20", "clang-21") if shutil.which(name)), None)
_COMPILE = "$CC $LIST -c a.X -o $OUT"
_SAID = "int said = SAID;\n"
_HEADER = "#define SAID %\n"
_INCLUDE = f"#include <said.h>\n{_SAID}"
_WITH_SCRIPT = 'PATH="$PWD/bin:$PATH" ' + _COMPILE
_HAS = '#if __has_include("said.h")\nint said = 2;\n#else\nint said;\n#endif\n'
_BLOB = (
    'void NAME(void) { __asm__(".pushsection .rodata\\n.incbin \\"blob\\"\\n.popsection\\n"); }\n'
)


def _script(program: str, option: str) -> str:
    """Return a script that starts a program with one more option."""
    return f'#!/bin/sh\nexec {shutil.which(program) or program} {option} "$@"\n'


_ASSEMBLER = {
    "a.X": "int said(void) { return 1; }\n",
    "bin/as": _script("as", "--generate-missing-build-notes=$(test % = 0 && echo no || echo yes)"),
}


def _told(*command: str, **more: str) -> str:
    """Return what a compiler says; nothing if it is missing."""
    path = shutil.which(command[0])
    if path is None:
        return ""
    told = subprocess.run(
        [path, *command[1:]], env=os.environ | more, capture_output=True, text=True, check=False
    )
    return told.stdout + told.stderr


def _copied_gcc() -> dict[str, "Change"]:
    """gcc in another folder, whose own compiler is a script."""
    if not (path := _told("gcc", "-print-prog-name=cc1").strip()).startswith("/"):
        return {}
    folder = f"lib/gcc/{_told('gcc', '-dumpmachine').strip()}/{Path(path).parent.name}"
    files = {"a.X": _SAID, f"tree/{folder}/cc1": f'#!/bin/sh\nexec {path} -DSAID=% "$@"\n'}
    line = f"mkdir -p tree/bin && cp -n {shutil.which('gcc')} tree/bin/gcc && "
    return {
        "program-of-gcc": Change(files, line + _COMPILE.replace("$CC", "tree/bin/gcc"), ("gcc",))
    }


def _copied_nvcc() -> dict[str, "Change"]:
    """nvcc in another folder, with a file of options and an assembler of its own."""
    found = re.search(r"^#\$ _HERE_=(.*)$", _told("nvcc", "--dryrun", "-E", "a.cu"), re.MULTILINE)
    if not found:
        return {}
    here = Path(found[1]).resolve()
    line = (
        f"mkdir -p tree/bin && cp -n {here}/nvcc tree/bin/nvcc && "
        f"for each in {here.parent}/* {here}/*; do to=tree${{each#{here.parent}}}; "
        'test -e "$to" || ln -s "$each" "$to"; done; '
    )
    profile = (here / "nvcc.profile").read_text() + '\nINCLUDES += "-DSAID=%" $(_SPACE_)\n'
    ptxas = f'#!/bin/sh\nexec {here}/ptxas -O$(test % = 0 && echo 0 || echo 3) "$@"\n'
    kernel = "__global__ void said(int *to, int *from) { *to = *from * 3 + to[1]; }\n"
    compile_it = line + _COMPILE.replace("$CC", "tree/bin/nvcc")
    return {
        "profile-of-nvcc": Change(
            {"a.X": _SAID, "tree/bin/nvcc.profile": profile}, compile_it, NVCC
        ),
        "program-of-nvcc": Change({"a.X": kernel, "tree/bin/ptxas": ptxas}, compile_it, NVCC),
    }


# A library with the name of another one, which it loads. It changes the words of the program.
_SHIM = """
__attribute__((constructor)) void change(int count, char **words)
{
    for (int at = 1; at < count; at++) {
        char *word = words[at] + 2 * (words[at][0] == '-' && words[at][1] == 'D');
        if (word[0] == 'S' && word[1] == 'A' && word[4] == '=')
            word[5] = '0' + %;
    }
}
"""


def _libraries() -> dict[str, "Change"]:
    """Compilers of which one library is another."""
    found = {}
    cc1 = _told("gcc", "-print-prog-name=cc1").strip()
    for compiler, program in (("gcc", cc1), ("clang", "clang")):
        told = _told(program, LD_TRACE_LOADED_OBJECTS="1")
        named = re.search(r"^\s(lib(?:LLVM|mpc)\S*) => (/\S+)", told, re.MULTILINE)
        if not named:
            continue  # it is linked statically
        line = (
            "mkdir -p lib && rm -f lib/real.so && cc -shared -o lib/real.so -x c /dev/null && "
            f"cc -shared -fPIC -Wl,--no-as-needed,-soname,{named[1]} shim.c $PWD/lib/real.so "
            f"-o lib/{named[1]} && ln -sf {named[2]} lib/real.so && LD_LIBRARY_PATH=lib "
        )
        files = {"a.X": _SAID, "shim.c": _SHIM}
        found[f"library-of-{compiler}"] = Change(
            files, f"{line}{_COMPILE} -DSAID=1 2> /dev/null", (compiler,)
        )
    return found


class Change(NamedTuple):
    """``only`` are the files of one state. ``timed``: the object holds the time of its compile."""

    files: Mapping[str, str]
    compile: str = _COMPILE
    compilers: tuple[str, ...] = COMPILERS
    only: tuple[int, str] | None = None  # a state, and a file that the other one lacks
    link: tuple[str, str] | None = None  # a symbolic link, and what it leads to
    timed: bool = False

    def prepare(self, folder: Path, state: int, suffix: str) -> None:
        """Write the files of a state, and remove those of the other one."""
        for name, text in self.files.items():
            path = folder / inside(name, folder).replace("%", str(state)).replace(
                "a.X", f"a.{suffix}"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f"{path.name}.new")
            new.write_text(text.replace("%", str(state)))
            new.chmod(0o755 if text.startswith("#!") else 0o644)
            os.utime(new, (OLD, OLD))
            new.replace(path)
        if self.only and self.only[0] != state:
            (folder / inside(self.only[1], folder)).unlink()
        if self.link:
            name, target = (part.replace("%", str(state)) for part in self.link)
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(target)


def inside(text: str, folder: Path) -> str:
    """Return a text with the path of sources that are in no project, each folder's own."""
    return text.replace("OUTSIDE", f"../../{folder.name}-outside")


CHANGES: dict[str, Change] = {
    "source": Change({"a.X": "int said = %;\n"}),
    "option": Change({"a.X": _SAID}, f"{_COMPILE} -DSAID=$STATE"),
    "header": Change({"a.X": _INCLUDE, "include/said.h": _HEADER}, f"{_COMPILE} -Iinclude"),
    "system-header": Change(
        {"a.X": _INCLUDE, "include/said.h": _HEADER}, f"{_COMPILE} -isystem include"
    ),
    "only-system-headers": Change({"a.X": "#include <stddef.h>\nsize_t said = %;\n"}),
    "linked-folder": Change(
        {"a.X": _INCLUDE, "%/said.h": _HEADER}, f"{_COMPILE} -Iinclude", HOST, link=("include", "%")
    ),
    "forced-header": Change(
        {"a.X": _SAID, "said.h": _HEADER}, f"{_COMPILE} -include ./said.h", HOST
    ),
    "macro-file": Change({"a.X": _SAID, "said.h": _HEADER}, f"{_COMPILE} -imacros ./said.h", HOST),
    "CPATH": Change({"a.X": _INCLUDE, "%/said.h": _HEADER}, f"CPATH=$STATE {_COMPILE}", HOST),
    "header-in-CPATH": Change(
        {"a.X": _INCLUDE, "include/said.h": _HEADER}, f"CPATH=include {_COMPILE}"
    ),
    # Where the compiler looks
    "earlier-header": Change(
        {"a.X": _INCLUDE, "first/said.h": _HEADER, "second/said.h": "#define SAID 1\n"},
        f"{_COMPILE} -Ifirst -Isecond",
        only=(2, "first/said.h"),
    ),
    "header-beside": Change(
        {"a.X": _INCLUDE.replace("<said.h>", '"said.h"'), "said.h": _HEADER, "second/said.h": ""},
        f"{_COMPILE} -Isecond -DSAID=1",
        only=(2, "said.h"),
    ),
    "earlier-header-of-any-suffix": Change(
        {
            "a.X": _INCLUDE.replace(".h", ".icc"),
            "first/said.icc": _HEADER,
            "second/said.icc": "#define SAID 1\n",
        },
        f"{_COMPILE} -Ifirst -Isecond",
        HOST,
        only=(2, "first/said.icc"),
    ),
    "earlier-header-outside-of-the-project": Change(
        {
            "OUTSIDE/a.X": _INCLUDE,
            "OUTSIDE/first/said.h": _HEADER,
            "OUTSIDE/second/said.h": "#define SAID 1\n",
        },
        "$CC $LIST -c OUTSIDE/a.X -o $OUT -IOUTSIDE/first -IOUTSIDE/second",
        only=(2, "OUTSIDE/first/said.h"),
    ),
    "has-include": Change({"a.X": _HAS, "said.h": ""}, only=(2, "said.h")),
    "has-include-no-more": Change({"a.X": _HAS, "said.h": ""}, only=(0, "said.h")),
    # What the preprocessor does not read
    "incbin": Change({"a.X": _BLOB.replace("NAME", "said"), "blob": "blob %\n"}),
    "incbin-in-system-header": Change(
        {
            "a.X": "#include <said.h>\nvoid said(void) { take(); }\n",
            "include/said.h": f"static {_BLOB.replace('NAME', 'take')}",
            "blob": "blob %\n",
        },
        f"{_COMPILE} -isystem include",
    ),
    "incbin-in-assembler": Change(
        {"a.S": '.incbin "blob"\n', "blob": "blob %\n"}, _COMPILE.replace("a.X", "a.S"), HOST
    ),
    "include-in-assembler": Change(
        {"a.S": '.include "more"\n', "more": ".long %\n"}, _COMPILE.replace("a.X", "a.S"), HOST
    ),
    "include-in-inline-assembler": Change(
        {"a.X": '__asm__(".include \\"more\\"");\n', "more": ".long %\n"}, compilers=HOST
    ),
    "include-in-raw-string": Change(
        {"a.cc": '__asm__(R"(.include "more")");\n', "more": ".long %\n"},
        "g++ $LIST -c a.cc -o $OUT",
        ("gcc",),
    ),
    "include-in-preprocessed-source": Change(
        {"a.i": '__asm__(".include \\"more\\"");\n', "more": ".long %\n"},
        "$CC $LIST -c a.i -o $OUT",
        HOST,
    ),
    "include-in-source-of-any-name": Change(
        {"a": '__asm__(".include \\"more\\"");\n', "more": ".long %\n"},
        "$CC -x c $LIST -c a -o $OUT",
        HOST,
    ),
    **(
        {
            "embed": Change(
                {"a.X": 'const char said[] = {\n#embed "blob"\n};\n', "blob": "%\n"},
                f"{_COMPILE.replace('$CC', _EMBEDS)} -std=c23",
                ("clang",),
            )
        }
        if _EMBEDS
        else {}
    ),
    "date-in-system-header": Change(
        {
            "a.X": "#include <said.h>\nextern const char said[] = SAID;\n",
            "include/said.h": "#define SAID __DATE__\n",
        },
        f"SOURCE_DATE_EPOCH=$((1000000000 + STATE * 86400)) {_COMPILE} -w -isystem include",
        ("gcc",),
    ),
    "time-in-system-header": Change(
        {
            "a.X": "#include <said.h>\nextern const char said[] = SAID;\n",
            "include/said.h": "#define SAID __TIME__\n",
        },
        f"{_COMPILE} -w -isystem include",
        timed=True,
    ),
    # Files from which compilers take options, or which they load
    "response-file": Change({"a.X": _SAID, "words": "-DSAID=%\n"}, f"{_COMPILE} @words", HOST),
    "options-file": Change(
        {"a.X": _SAID, "words": "-DSAID=%\n"}, f"{_COMPILE} --options-file words", NVCC
    ),
    "options-file-with-equals": Change(
        {"a.X": _SAID, "words": "-DSAID=%\n"}, f"{_COMPILE} --options-file=words", NVCC
    ),
    "specs": Change(
        {"a.X": _SAID, "more": "*cpp:\n-DSAID=%\n"}, f"{_COMPILE} -specs=more", ("gcc",)
    ),
    "configuration-file": Change(
        {"a.X": _SAID, "more.cfg": "-DSAID=%\n"}, f"{_COMPILE} --config ./more.cfg", ("clang",)
    ),
    "precompiled-header": Change(
        {"a.X": _SAID, "said.h": _HEADER},
        f"$CC -x c-header said.h -o said.h.gch && {_COMPILE} -include said.h",
        ("gcc",),
    ),
    "module": Change(
        {
            "a.cc": "import said;\nint said = value();\n",
            "said.cc": "export module said;\nexport inline int value() { return %; }\n",
        },
        "g++ -std=c++20 -fmodules-ts -c said.cc -o said.o && "
        "g++ -std=c++20 -fmodules-ts $LIST -c a.cc -o $OUT",
        ("gcc",),
    ),
    # Programs that compilers start
    "assembler-by-option": Change(_ASSEMBLER, f"{_COMPILE} $OWN -Bbin", HOST),
    "assembler-by-variable": Change(_ASSEMBLER, f"COMPILER_PATH=bin {_COMPILE}", ("gcc",)),
    "assembler-on-PATH": Change(_ASSEMBLER, _WITH_SCRIPT, ("gcc",)),
    "wrapper-of-the-driver": Change(
        {
            "a.X": _SAID,
            "more": '#!/bin/sh\ntest "${1##*/}" != cc1 || set -- "$@" -DSAID=%\nexec "$@"\n',
        },
        f"{_COMPILE} -wrapper ./more",
        ("gcc",),
    ),
    **{
        f"host-compiler{way}": Change(
            {
                "a.X": "#ifdef SAID\nint said = SAID;\n#endif\n",
                "bin/gcc": _script("g++", "-DSAID=%"),
            },
            compile_it,
            NVCC,
        )
        for way, compile_it in (
            ("", f"{_COMPILE} -ccbin bin/gcc"),
            ("-with-equals", f"{_COMPILE} --compiler-bindir=bin/gcc"),
            ("-by-variable", f"NVCC_CCBIN=bin/gcc {_COMPILE}"),
            ("-on-PATH", _WITH_SCRIPT),
        )
    },
    **{
        f"{kind}-{name}": Change(files, _WITH_SCRIPT, (name,), link=link)
        for name in (*HOST, *NVCC)
        for kind, files, link in (
            ("script", {"a.X": _SAID, f"bin/{name}": _script(name, "-DSAID=%")}, None),
            (
                "file-of-a-script",
                {
                    "a.X": _SAID,
                    "bin/flags": "-DSAID=%\n",
                    f"bin/{name}": _script(name, "$(cat bin/flags)"),
                },
                None,
            ),
            (
                "link-to-a-script",
                {"a.X": _SAID, "bin/kept": "", f"%/{name}": _script(name, "-DSAID=%")},
                (f"bin/{name}", f"../%/{name}"),
            ),
        )
    },
    **_copied_gcc(),
    **_copied_nvcc(),
    **_libraries(),
    # Options that name files, or change what the object holds
    "ignore-list": Change(
        {"a.X": "int said(int *a) { return *a; }\n", "list": "fun:said*%\n"},
        f"sed -i s/.0// list && {_COMPILE} -fsanitize=address -fsanitize-ignorelist=list",
        ("clang",),
    ),
    "options-of-the-assembler": Change(
        {"a.X": '__asm__(".byte SAID");\n', "words": "--defsym SAID=%\n"},
        f"{_COMPILE} $OWN -Wa,@words",
        HOST,
    ),
    "specs-of-B": Change(
        {"a.X": _SAID, "more/specs": "*cpp:\n-DSAID=%\n"}, f"{_COMPILE} -Bmore/", ("gcc",)
    ),
    "override": Change(
        {"a.X": _SAID}, f"CCC_OVERRIDE_OPTIONS='#+-DSAID='$STATE {_COMPILE}", ("clang",)
    ),
    "prebuilt-module": Change(
        {
            "a.cc": "import said;\nint said = value();\n",
            "said.cppm": "export module said;\nexport inline int value() { return %; }\n",
        },
        "clang++ -std=c++20 --precompile said.cppm -o said.pcm && "
        "clang++ -std=c++20 -fprebuilt-module-path=. $LIST -c a.cc -o $OUT",
        ("clang",),
    ),
    **{
        f"{name}-of-a-folder": Change(
            {"%/a.X": "void said(void) {}\n"},
            f"cd $STATE && $CC $LIST {options} -c a.X -o ../$OUT",
            compilers,
        )
        for name, options, compilers in (
            ("debug", "--debug", HOST),
            ("debug-of-clang", "-Xclang -debug-info-kind=limited", ("clang",)),
            ("counters", "-fprofile-arcs", ("clang",)),
        )
    },
    # Other files than the object, which a hit must make too
    **{
        name: Change(
            {"a.X": "int said(void) { return %; }\n"},
            f"rm -f said.more; {_COMPILE} {options} && {shown} said.more >> $OUT",
            compilers,
        )
        for name, options, shown, compilers in (
            # The list has the name of a temporary file.
            ("list-of-the-assembler", "$OWN -Wa,--MD,said.more", "grep -o assembler-", ("gcc",)),
            ("thin-link", "-flto=thin -Xclang -fthin-link-bitcode=said.more", "cat", ("clang",)),
        )
    },
    "list-by-variable": Change(
        {"a.X": _INCLUDE, "include/said.h": _HEADER},
        "rm -f more; DEPENDENCIES_OUTPUT=more $CC -c a.X -o $OUT -Iinclude && cat more >> $OUT",
        ("gcc",),
    ),
    # nvcc
    "host-code": Change({"a.X": "#ifndef __CUDA_ARCH__\nint said = %;\n#endif\n"}, compilers=NVCC),
    "header-of-host-code": Change(
        {"a.X": f"#ifndef __CUDA_ARCH__\n{_INCLUDE}#endif\n", "include/said.h": _HEADER},
        f"{_COMPILE} -isystem include",
        NVCC,
    ),
    "device-code": Change({"a.X": "__global__ void said(int *to) { *to = %; }\n"}, compilers=NVCC),
    "flags-of-nvcc": Change({"a.X": _SAID}, f"NVCC_APPEND_FLAGS=-DSAID=$STATE {_COMPILE}", NVCC),
}


class Cell(NamedTuple):
    change: str
    list: str

    @property
    def output(self) -> str:
        return f"{self.change}{self.list}.o"

    @property
    def what(self) -> Change:
        return CHANGES[self.change]


References = dict[int, dict[Cell, bytes]]  # by state


class Project:
    """The compiles of some cells, each in a folder of its own."""

    def __init__(self, folder: Path, compiler: str, cells: list[Cell]):
        self.folder, self.cells = folder, cells
        self.compiler = compiler
        self._suffix = "cu" if compiler in NVCC else "c"
        for cell in cells:
            self._place(cell).mkdir(parents=True)
        (folder / "stoker.toml").touch()

    def _place(self, cell: Cell) -> Path:
        return self.folder / f"{cell.change}{cell.list}"

    def prepare(self, state: int) -> list[str]:
        """Write the files of a state; return the command that compiles them all."""
        lines = []
        for cell in self.cells:
            place = self._place(cell)
            cell.what.prepare(place, state, self._suffix)
            (place / cell.output).unlink(missing_ok=True)
            compile_it = inside(cell.what.compile.replace("a.X", f"a.{self._suffix}"), place)
            lines.append(
                f"( cd {place} && OUT={cell.output} LIST='{LISTS[cell.list]}' && {compile_it} ) &"
            )
        own = _OWN.get(self.compiler, "")
        begin = [f"CC='{self.compiler}' OWN='{own}' STATE={state}"]
        (self.folder / "compile.sh").write_text("\n".join([*begin, *lines, "wait", ""]))
        return ["sh", "compile.sh"]

    def objects(self) -> dict[Cell, bytes]:
        """Return what was compiled; a compile that failed has nothing. Objects of nvcc name a
        temporary file, which sccache calls otherwise: they are compared without local symbols.
        """
        found = {}
        for cell in self.cells:
            path = self._place(cell) / cell.output
            if path.exists() and self.compiler in NVCC:
                subprocess.run(["strip", "--strip-unneeded", path], check=True)
            if path.exists():
                found[cell] = _TEMPORARY.sub(b"", path.read_bytes())
        return found

    def references(self) -> References:
        """Compile plainly. A cell that cannot be compiled, or that changes nothing, is an error."""
        found = {}
        for state in STATES:
            subprocess.run(self.prepare(state), cwd=self.folder, check=True)
            found[state] = self.objects()
        for cell in self.cells:
            first, second = (objects.get(cell) for objects in found.values())
            if first is None or second is None or (first == second and not cell.what.timed):
                raise AssertionError(
                    f"{cell} cannot be compiled by {self.compiler}, or changes nothing"
                )
        return found

"""Changes of the programs, libraries and files of options of a compiler that stays the same."""

import re
import shutil
from pathlib import Path

from change import COMPILE, NEW_CLANG, NVCC, SAID, Change, assembler_at, script, told


def copied_gcc() -> dict[str, Change]:
    """gcc in another folder, whose own compiler is a script."""
    if not (path := told("gcc", "-print-prog-name=cc1").strip()).startswith("/"):
        return {}
    machine = told("gcc", "-dumpmachine").strip()
    folder = f"lib/gcc/{machine}/{Path(path).parent.name}"
    gcc = shutil.which("gcc")
    cc1 = f'#!/bin/sh\nexec {path} -DSAID=% "$@"\n'
    compile_it = COMPILE.replace("$CC", "tree/bin/gcc")
    files = {"a.X": SAID, f"tree/{folder}/cc1": cc1}
    found = {
        "program-of-gcc": Change(
            files, f"mkdir -p tree/bin && cp -n {gcc} tree/bin/gcc && {compile_it}", ("gcc",)
        ),
        # A hard link is the same file, and the driver is where the symbolic link leads.
        "link-to-the-folder-of-gcc": Change(
            {"a.X": SAID, f"%/{folder}/cc1": cc1, "2/bin/.keep": ""},
            f"mkdir -p 0/bin && cp -n {gcc} 0/bin/gcc && ln -f 0/bin/gcc 2/bin/gcc; {compile_it}",
            ("gcc",),
            link=("tree", "%"),
        ),
        "folder-of-a-linked-gcc": Change(
            files,
            f"mkdir -p tree/bin && ln -sf {gcc} tree/bin/gcc && "
            f"{compile_it} -no-canonical-prefixes",
            ("gcc",),
        ),
        "new-assembler-of-gcc": Change(
            {
                f"tree/{folder}/cc1": f'#!/bin/sh\nexec {path} "$@"\n',
                **assembler_at(f"tree/{machine}/bin/as"),
                f"tree/{machine}/bin/as": script("as", "--generate-missing-build-notes=yes"),
            },
            f"mkdir -p tree/bin && cp -n {gcc} tree/bin/gcc && {compile_it}",
            ("gcc",),
            only=(2, f"tree/{machine}/bin/as"),
        ),
    }
    for name, where in (
        ("a-target", machine),
        ("a-version", f"{machine}/{Path(path).parent.name}"),
    ):
        at = assembler_at(f"bin/{where}/as")
        found[f"assembler-of-{name}"] = Change(at, f"{COMPILE} -Bbin", ("gcc",))
        by_variable = Change(at, f"COMPILER_PATH=bin {COMPILE}", ("gcc",))
        found[f"assembler-of-{name}-by-variable"] = by_variable
    return found


def copied_clang() -> dict[str, Change]:
    """clang in another folder, which reads options from a file beside it."""
    path = shutil.which(NEW_CLANG or "")
    if path is None:
        return {}
    line = (
        "mkdir -p tree/bin && "
        f"{{ test -e tree/bin/clang || cp {Path(path).resolve()} tree/bin/clang; }} && "
    )
    compile_it = line + COMPILE.replace("$CC", "tree/bin/clang")
    source = "#ifndef SAID\n#define SAID 1\n#endif\nint said = SAID;\n"
    return {
        "usual-configuration": Change(
            {"a.X": SAID, "tree/bin/clang.cfg": "-DSAID=%\n"}, compile_it, ("clang",)
        ),
        "new-configuration": Change(
            {"a.X": source, "tree/bin/clang.cfg": "-DSAID=%\n"},
            compile_it,
            ("clang",),
            only=(2, "tree/bin/clang.cfg"),
        ),
        "file-of-a-usual-configuration": Change(
            {"a.X": SAID, "tree/bin/clang.cfg": "@more.cfg\n", "tree/bin/more.cfg": "-DSAID=%\n"},
            compile_it,
            ("clang",),
        ),
    }


def copied_nvcc() -> dict[str, Change]:
    """nvcc in another folder, with a file of options and an assembler of its own."""
    found = re.search(r"^#\$ _HERE_=(.*)$", told("nvcc", "--dryrun", "-E", "a.cu"), re.MULTILINE)
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
    compile_it = line + COMPILE.replace("$CC", "tree/bin/nvcc")
    return {
        "profile-of-nvcc": Change(
            {"a.X": SAID, "tree/bin/nvcc.profile": profile}, compile_it, NVCC
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


def other_libraries() -> dict[str, Change]:
    """Compilers of which one library is another."""
    found = {}
    cc1 = told("gcc", "-print-prog-name=cc1").strip()
    for compiler, program in (("gcc", cc1), ("clang", "clang")):
        listed = told(program, LD_TRACE_LOADED_OBJECTS="1")
        named = re.search(r"^\s(lib(?:LLVM|mpc)\S*) => (/\S+)", listed, re.MULTILINE)
        if not named:
            continue  # it is linked statically
        line = (
            "mkdir -p lib && rm -f lib/real.so && cc -shared -o lib/real.so -x c /dev/null && "
            f"cc -shared -fPIC -Wl,--no-as-needed,-soname,{named[1]} shim.c $PWD/lib/real.so "
            f"-o lib/{named[1]} && ln -sf {named[2]} lib/real.so && LD_LIBRARY_PATH=lib "
        )
        files = {"a.X": SAID, "shim.c": _SHIM}
        found[f"library-of-{compiler}"] = Change(
            files, f"{line}{COMPILE} -DSAID=1 2> /dev/null", (compiler,)
        )
    return found

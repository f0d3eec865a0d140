"""Changes between two compiles that a cache must notice, for benchmarks/cache_truth.py and tests.

A change has two states, 0 and 2. Its files are written before the compile, with the state in place
of each "%". ``compile`` is a shell command that makes $OUT with $CC and $LIST, the options by which
the compiler lists the headers that it reads; "a.X" is the source.
"""

from change import (
    ASSEMBLER,
    COMPILE,
    HEADER,
    HOST,
    INCLUDE,
    NEW_CLANG,
    NVCC,
    SAID,
    WITH_SCRIPT,
    Change,
    assembler_at,
    script,
)
from copied_compilers import copied_clang, copied_gcc, copied_nvcc, other_libraries

HAS = '#if __has_include("said.h")\nint said = 2;\n#else\nint said;\n#endif\n'
BLOB = (
    'void NAME(void) { __asm__(".pushsection .rodata\\n.incbin \\"blob\\"\\n.popsection\\n"); }\n'
)

CHANGES: dict[str, Change] = {
    "source": Change({"a.X": "int said = %;\n"}),
    "option": Change({"a.X": SAID}, f"{COMPILE} -DSAID=$STATE"),
    "header": Change({"a.X": INCLUDE, "include/said.h": HEADER}, f"{COMPILE} -Iinclude"),
    "system-header": Change(
        {"a.X": INCLUDE, "include/said.h": HEADER}, f"{COMPILE} -isystem include"
    ),
    "only-system-headers": Change({"a.X": "#include <stddef.h>\nsize_t said = %;\n"}),
    "linked-folder": Change(
        {"a.X": INCLUDE, "%/said.h": HEADER}, f"{COMPILE} -Iinclude", HOST, link=("include", "%")
    ),
    "forced-header": Change({"a.X": SAID, "said.h": HEADER}, f"{COMPILE} -include ./said.h", HOST),
    "macro-file": Change({"a.X": SAID, "said.h": HEADER}, f"{COMPILE} -imacros ./said.h", HOST),
    "CPATH": Change({"a.X": INCLUDE, "%/said.h": HEADER}, f"CPATH=$STATE {COMPILE}", HOST),
    "header-in-CPATH": Change(
        {"a.X": INCLUDE, "include/said.h": HEADER}, f"CPATH=include {COMPILE}"
    ),
    # Where the compiler looks
    "earlier-header": Change(
        {"a.X": INCLUDE, "first/said.h": HEADER, "second/said.h": "#define SAID 1\n"},
        f"{COMPILE} -Ifirst -Isecond",
        only=(2, "first/said.h"),
    ),
    "header-beside": Change(
        {"a.X": INCLUDE.replace("<said.h>", '"said.h"'), "said.h": HEADER, "second/said.h": ""},
        f"{COMPILE} -Isecond -DSAID=1",
        only=(2, "said.h"),
    ),
    "earlier-header-of-any-suffix": Change(
        {
            "a.X": INCLUDE.replace(".h", ".icc"),
            "first/said.icc": HEADER,
            "second/said.icc": "#define SAID 1\n",
        },
        f"{COMPILE} -Ifirst -Isecond",
        HOST,
        only=(2, "first/said.icc"),
    ),
    "earlier-header-outside-of-the-project": Change(
        {
            "OUTSIDE/a.X": INCLUDE,
            "OUTSIDE/first/said.h": HEADER,
            "OUTSIDE/second/said.h": "#define SAID 1\n",
        },
        "$CC $LIST -c OUTSIDE/a.X -o $OUT -IOUTSIDE/first -IOUTSIDE/second",
        only=(2, "OUTSIDE/first/said.h"),
    ),
    "has-include": Change({"a.X": HAS, "said.h": ""}, only=(2, "said.h")),
    "has-include-no-more": Change({"a.X": HAS, "said.h": ""}, only=(0, "said.h")),
    # What the preprocessor does not read
    "incbin": Change({"a.X": BLOB.replace("NAME", "said"), "blob": "blob %\n"}),
    "incbin-in-system-header": Change(
        {
            "a.X": "#include <said.h>\nvoid said(void) { take(); }\n",
            "include/said.h": f"static {BLOB.replace('NAME', 'take')}",
            "blob": "blob %\n",
        },
        f"{COMPILE} -isystem include",
    ),
    "incbin-in-assembler": Change(
        {"a.S": '.incbin "blob"\n', "blob": "blob %\n"}, COMPILE.replace("a.X", "a.S"), HOST
    ),
    "include-in-assembler": Change(
        {"a.S": '.include "more"\n', "more": ".long %\n"}, COMPILE.replace("a.X", "a.S"), HOST
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
                f"{COMPILE.replace('$CC', NEW_CLANG)} -std=c23",
                ("clang",),
            )
        }
        if NEW_CLANG
        else {}
    ),
    "date-in-system-header": Change(
        {
            "a.X": "#include <said.h>\nextern const char said[] = SAID;\n",
            "include/said.h": "#define SAID __DATE__\n",
        },
        f"SOURCE_DATE_EPOCH=$((1000000000 + STATE * 86400)) {COMPILE} -w -isystem include",
        ("gcc",),
    ),
    "time-in-system-header": Change(
        {
            "a.X": "#include <said.h>\nextern const char said[] = SAID;\n",
            "include/said.h": "#define SAID __TIME__\n",
        },
        f"{COMPILE} -w -isystem include",
        timed=True,
    ),
    # Files from which compilers take options, or which they load
    "response-file": Change({"a.X": SAID, "words": "-DSAID=%\n"}, f"{COMPILE} @words", HOST),
    "options-file": Change(
        {"a.X": SAID, "words": "-DSAID=%\n"}, f"{COMPILE} --options-file words", NVCC
    ),
    "options-file-with-equals": Change(
        {"a.X": SAID, "words": "-DSAID=%\n"}, f"{COMPILE} --options-file=words", NVCC
    ),
    "specs": Change({"a.X": SAID, "more": "*cpp:\n-DSAID=%\n"}, f"{COMPILE} -specs=more", ("gcc",)),
    "configuration-file": Change(
        {"a.X": SAID, "more.cfg": "-DSAID=%\n"}, f"{COMPILE} --config ./more.cfg", ("clang",)
    ),
    "file-of-a-configuration": Change(
        {"a.X": SAID, "more.cfg": "@most.cfg\n", "most.cfg": "-DSAID=%\n"},
        f"{COMPILE} --config ./more.cfg",
        ("clang",),
    ),
    "precompiled-header": Change(
        {"a.X": SAID, "said.h": HEADER},
        f"$CC -x c-header said.h -o said.h.gch && {COMPILE} -include said.h",
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
    "assembler-by-option": Change(ASSEMBLER, f"{COMPILE} $OWN -Bbin", HOST),
    "assembler-by-prefix": Change(assembler_at("bin/my-as"), f"{COMPILE} $OWN -Bbin/my-", HOST),
    "assembler-by-long-option": Change(ASSEMBLER, f"{COMPILE} $OWN --prefix=bin", HOST),
    "assembler-named-after-a-target": Change(
        assembler_at("bin/x86_64-my-linux-gnu-as"),
        f"{WITH_SCRIPT} $OWN --target=x86_64-my-linux-gnu",
        ("clang",),
    ),
    "assembler-by-variable": Change(ASSEMBLER, f"COMPILER_PATH=bin {COMPILE}", ("gcc",)),
    "assembler-on-PATH": Change(ASSEMBLER, WITH_SCRIPT, ("gcc",)),
    "wrapper-of-the-driver": Change(
        {
            "a.X": SAID,
            "more": '#!/bin/sh\ntest "${1##*/}" != cc1 || set -- "$@" -DSAID=%\nexec "$@"\n',
        },
        f"{COMPILE} -wrapper ./more",
        ("gcc",),
    ),
    **{
        f"host-compiler{way}": Change(
            {
                "a.X": "#ifdef SAID\nint said = SAID;\n#endif\n",
                "bin/gcc": script("g++", "-DSAID=%"),
            },
            compile_it,
            NVCC,
        )
        for way, compile_it in (
            ("", f"{COMPILE} -ccbin bin/gcc"),
            ("-with-equals", f"{COMPILE} --compiler-bindir=bin/gcc"),
            ("-by-variable", f"NVCC_CCBIN=bin/gcc {COMPILE}"),
            ("-on-PATH", WITH_SCRIPT),
        )
    },
    **{
        f"{kind}-{name}": Change(files, WITH_SCRIPT, (name,), link=link)
        for name in (*HOST, *NVCC)
        for kind, files, link in (
            ("script", {"a.X": SAID, f"bin/{name}": script(name, "-DSAID=%")}, None),
            (
                "file-of-a-script",
                {
                    "a.X": SAID,
                    "bin/flags": "-DSAID=%\n",
                    f"bin/{name}": script(name, "$(cat bin/flags)"),
                },
                None,
            ),
            (
                "link-to-a-script",
                {"a.X": SAID, "bin/kept": "", f"%/{name}": script(name, "-DSAID=%")},
                (f"bin/{name}", f"../%/{name}"),
            ),
        )
    },
    **copied_gcc(),
    **copied_clang(),
    **copied_nvcc(),
    **other_libraries(),
    # Options that name files, or change what the object holds
    "ignore-list": Change(
        {"a.X": "int said(int *a) { return *a; }\n", "list": "fun:said*%\n"},
        f"sed -i s/.0// list && {COMPILE} -fsanitize=address -fsanitize-ignorelist=list",
        ("clang",),
    ),
    "options-of-the-assembler": Change(
        {"a.X": '__asm__(".byte SAID");\n', "words": "--defsym SAID=%\n"},
        f"{COMPILE} $OWN -Wa,@words",
        HOST,
    ),
    "specs-of-B": Change(
        {"a.X": SAID, "more/specs": "*cpp:\n-DSAID=%\n"}, f"{COMPILE} -Bmore/", ("gcc",)
    ),
    "override": Change(
        {"a.X": SAID}, f"CCC_OVERRIDE_OPTIONS='#+-DSAID='$STATE {COMPILE}", ("clang",)
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
            f"rm -f said.more; {COMPILE} {options} && {shown} said.more >> $OUT",
            compilers,
        )
        for name, options, shown, compilers in (
            # The list has the name of a temporary file.
            ("list-of-the-assembler", "$OWN -Wa,--MD,said.more", "grep -o assembler-", ("gcc",)),
            (
                "list-of-the-assembler-by-words",
                "-Xassembler --MD -Xassembler said.more",
                "ls",
                ("gcc",),
            ),
            ("thin-link", "-flto=thin -Xclang -fthin-link-bitcode=said.more", "cat", ("clang",)),
        )
    },
    "list-by-long-option": Change(
        {"a.X": INCLUDE, "include/said.h": HEADER},
        "rm -f *.d; $CC -c a.X -o $OUT -Iinclude --write-dependencies && cat *.d >> $OUT",
        HOST,
    ),
    "headers-by-variable": Change(
        {"a.X": INCLUDE, "include/said.h": HEADER},
        "rm -f more; CC_PRINT_HEADERS=1 CC_PRINT_HEADERS_FILE=$PWD/more "
        "$CC -c a.X -o $OUT -Iinclude && cat more >> $OUT",
        ("clang",),
    ),
    "recorded-command": Change(
        {"a.X": "int said = %;\n"}, f"{COMPILE} -g -grecord-gcc-switches", ("clang",)
    ),
    "list-by-variable": Change(
        {"a.X": INCLUDE, "include/said.h": HEADER},
        "rm -f more; DEPENDENCIES_OUTPUT=more $CC -c a.X -o $OUT -Iinclude && cat more >> $OUT",
        ("gcc",),
    ),
    # nvcc
    "host-code": Change({"a.X": "#ifndef __CUDA_ARCH__\nint said = %;\n#endif\n"}, compilers=NVCC),
    "header-of-host-code": Change(
        {"a.X": f"#ifndef __CUDA_ARCH__\n{INCLUDE}#endif\n", "include/said.h": HEADER},
        f"{COMPILE} -isystem include",
        NVCC,
    ),
    "device-code": Change({"a.X": "__global__ void said(int *to) { *to = %; }\n"}, compilers=NVCC),
    "headers-of-nvcc": Change({"a.X": SAID}, f'INCLUDES="-DSAID=$STATE " {COMPILE}', NVCC),
    "flags-of-ptxas": Change(
        {"a.X": "__global__ void said(int *to, int *from) { *to = *from * 3 + to[1]; }\n"},
        f"PTXAS_FLAGS=-O$STATE {COMPILE}",
        NVCC,
    ),
    "flags-of-nvcc": Change({"a.X": SAID}, f"NVCC_APPEND_FLAGS=-DSAID=$STATE {COMPILE}", NVCC),
}

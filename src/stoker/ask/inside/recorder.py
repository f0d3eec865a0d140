"""Stands in for a compiler: notes its command and makes empty outputs, so that the build continues.

    recorder [--custom] [--as ARGV0] PROGRAM ARGUMENT...

The preloaded library starts it in place of each compile and link. Questions to compilers, checks of
CMake, of Meson and of configure scripts do not come here: they are answered by the real programs.
A compile of sources outside the tree is a question of the project's own, and is answered too.
"""

import json
import os
import sys

_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".hip", ".m", ".mm", ".s", ".S", ".f", ".f90")
_OBJECTS = (".o", ".obj", ".a", ".so", ".lo")


def main(words):
    custom = words[:1] == ["--custom"]
    words = words[custom:]
    name = None
    if words[:1] == ["--as"]:
        name, words = words[1], words[2:]
    if custom or _is_question(words[1:]):
        _run(words, name, observed=custom)
    _note({"note": "compile", "words": words, "folder": os.getcwd(), "by": _parent()})
    for output in _outputs(words[1:]):
        os.makedirs(os.path.dirname(output) or ".", exist_ok=True)
        open(output, "a").close()


def _run(words, name, *, observed):
    """Become the real program. What a custom command starts is recorded; a compiler starts its own
    programs.
    """
    environment = dict(os.environ)
    preload = environment.pop("STOKER_LD_PRELOAD", "")
    if observed:
        environment["LD_PRELOAD"] = preload
    else:
        environment = {k: v for k, v in environment.items() if not k.startswith("STOKER_")}
    os.execve(words[0], [name or words[0], *words[1:]], environment)


def _is_question(words):
    """Tell whether the project asks the compiler something with a small source of its own."""
    inputs = [w for w in words if not w.startswith("-")]
    sources = [w for w in inputs if w.endswith(_SOURCES)]
    roots = os.environ.get("STOKER_ASKED_TREE", "/").split(":")
    if sources:
        return not any(
            os.path.realpath(s).startswith(root + "/") for s in sources for root in roots
        )
    objects = [w for w in inputs if w.endswith(_OBJECTS)]
    # What was made from empty objects is no library: it is only noted.
    return bool(objects) and not any(_is_empty(path) for path in objects)


def _parent():
    """Return the name of the program that started the compiler."""
    try:
        with open("/proc/%d/comm" % os.getppid()) as stream:
            return stream.read().strip()
    except OSError:
        return ""


def _is_empty(path):
    try:
        return os.path.getsize(path) == 0
    except OSError:
        return True


def _outputs(words):
    for before, word in zip(words, words[1:]):
        if before in ("-o", "-MF", "--output-file", "--dependency-output"):
            yield word
    for word in words:
        if word.startswith("-o") and len(word) > 2 and not word.startswith("-op"):
            yield word[2:]
    if "-o" not in words and "-c" in words:
        for word in words:
            if word.endswith(_SOURCES) and not word.startswith("-"):
                yield os.path.splitext(os.path.basename(word))[0] + ".o"


def _note(note):
    folder = os.environ.get("STOKER_NOTES")
    if folder:
        line = (json.dumps(note) + "\n").encode("ascii")
        file = os.open(folder + "/compiles", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, line)
        os.close(file)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Tells an excerpt that has no cause in it: its lines only report that other tools failed."""

from collections.abc import Iterator

from stoker.diagnose.lines import compiled
from stoker.diagnose.signs import LogSearch, Match, symptom
from stoker.diagnose.steps import failed_step

# A line that only says that something failed, by its status.
_HOLLOW = (
    r"(?:return(?:ed|s)?|exit(?:ed)?|failed|finished).{0,60}\b(?:code|status|value):? ?-?[1-9]"
    r"|\bnon-?zero\b|\*\*\* \[.{1,300}\] [^\W\d]{2,12} \d{1,3}|subcommand failed|^\s*raise "
    r"|Error (?:compiling objects|building extension)|[Ff]ailed to (?:build|compile|make)\b"
    r"|(?:[Cc]ommand|process|[Tt]ask|step|job|[Bb]uild|stage)\b.{0,120}\bfailed"
    r"|did not complete successfully|^\s*Error \d{1,3}$|exit (?:status|code):? [1-9]"
    r"|^\s*Error generating(?: file)?$"
    r"|(?:[Bb]uild|BUILD) (?:failed|FAILED)|error: Cannot build '|\b(?:Aborting|aborted due to)\b"
    r"|ERROR: A failure occurred|error making: |Failed to install the following packages"
    r"|Bad return status|failed with: BUILD_FAILED"
    r"|Could not build wheels|Failed building wheel|subprocess-exited-with-error"
    r"|metadata-generation-failed|linker command failed|ld returned \d|[1-9]\d* errors? generated"
    r"|too many errors emitted"
    r"|Configuring incomplete|returned an error$|\.\.\. error$"
    r"|^\s*(?:ERROR|Error|error|FAILED|Failed)\W{0,4}$"
)
_NOTE = r": note: |^\s{0,8}>>> |^\s*\d{0,7} \||^In file included from|^\s{2,}from "
# What the excerpt is of, the innermost tool that the user starts first.
_TOOLS = (
    ("apt", r"apt(?:-get)? (?:update|install|-y|upgrade|dist-upgrade).{0,400}exit code: 100"),
    ("docker", r"ERROR: failed to (?:solve|build)|The command '/bin/sh -c"),
    ("package", r"dpkg-buildpackage|dh_auto_|debian/rules|rpmbuild|==> ERROR: A failure"),
    ("ninja", r"ninja: build stopped|\bninja\b.{0,80}-v\b"),
    (
        "pip",
        r"cpp_extension\.py|Failed building wheel|pip subprocess|RuntimeError: Error compiling",
    ),
    ("make", r"make(?:\[\d+\])?: \*\*\*"),
    ("cargo", r"could not compile `|failed to run custom build command"),
)


def hollow_excerpt(search: LogSearch) -> Iterator[Match]:
    """Yield the first line of an excerpt whose errors all only repeat that a step failed."""
    lines, steps = search.lines, search.steps
    said = [*steps.errors, *sorted(steps.echoes)]
    errors = [line for line in steps.errors if line not in steps.cut]
    if not said or not all(_is_hollow(lines[line].text) for line in errors):
        return
    if steps.cut:
        yield symptom("excerpt-cut-off", min(steps.cut), 0.5, {})
        return
    texts = "\n".join(line.text for line in lines)
    tools = [name for name, pattern in _TOOLS if compiled(pattern).search(texts)]
    groups = {"what": failed_step(search.texts)} if failed_step(search.texts) else {}
    yield symptom("excerpt-without-cause", min(said), 0.5, groups | dict.fromkeys(tools[:1], "yes"))


def _is_hollow(text: str) -> bool:
    return bool(compiled(_HOLLOW).search(text) or compiled(_NOTE).search(text))

"""Reads messages of any tool that say that a program is missing; Debian's lists name programs."""

from collections.abc import Iterator

from stoker.diagnose.lines import compiled
from stoker.diagnose.messages import message_text
from stoker.diagnose.signs import LogSearch
from stoker.knowledge.providers import ProvidedKind, provider

_MOST = 50  # messages that are looked into
_NAME = r"[\"'`\u2018]?(?:/[\w./-]{1,80}/)?(?P<program>[A-Za-z][\w.+-]{1,40}?)[\"'`\u2019]?"
_KIND = r"(?:program|executable|command|tool|binary|linker|compiler|utility|assembler)"
_FAILS = r"(?:[Cc]ould not|[Cc]ouldn't|[Cc]annot|[Cc]an't|[Uu]nable to|[Ff]ailed to|[Nn]ot able to)"
# What says that a program is missing; the first two say so in words for programs only.
_SURE = (
    rf"\b{_KIND}:? {_NAME} (?:(?:is|was) )?(?:not (?:be )?(?:found|installed|available)|missing)\b",
    (
        rf"{_NAME} (?:{_KIND} )?(?:(?:is|was|could) )?(?:not|n't) (?:be )?"
        rf"(?:found|available|installed|located)(?: in| on)? (?:the |your |any )?\$?\{{?PATH\b"
    ),
    rf"\bspawn {_NAME} ENOENT\b",
    rf"{_NAME} {_KIND} (?:(?:is|was|could) )?(?:not (?:be )?(?:found|installed|located)|missing)\b",
    rf"{_FAILS} (?:find|locate|execute) (?:the |an? )?{_KIND} {_NAME}(?=[\s.,;:!)]|$)",
    rf"{_FAILS} (?:find|locate|execute) (?:the |an? )?{_NAME} {_KIND}(?=[\s.,;:!)]|$)",
)
# What was to be run is a program, whatever word it is called by.
_RUN = (
    rf"{_FAILS} (?:execute|run|spawn|start|exec|launch|invoke) (?:{_KIND} )?{_NAME}"
    r"(?![\w+-]).{0,40}(?:[Nn]o such file|not found|NotFound|os error 2)"
)
_PERHAPS = (
    rf"{_FAILS} (?:find|locate|execute) (?:the |an? )?{_NAME}(?=[\s.,;:!)]|$)",
    rf"(?:^|[\s:]){_NAME} (?:(?:is|was) )?(?:not (?:found|installed)|missing)(?=[\s.,;:!)]|$)",
    rf"(?:^|[\s:])[Mm]issing {_NAME}[.!]?$",
)
# Each of these messages has one of them; most logs need no pattern of these compiled.
_WORDS = ("not", "n't", "issing", "nable to", "ailed to", "ENOENT")
# Words of messages that programs are also called; and compilers, whose lack is another cause.
_WORD = (
    r"(?:test|link|install|file|time|dir|target|column|look|host|read|write|date|make\.|group|users?"
    r"|which|env|size|tag|join|script|free|find|who|watch|package|config|header|install|module|class"
    r"|cc|c\+\+|gcc|g\+\+|clang|clang\+\+|ld|cl|tools?|compiler|python\d?|library|perl|java|ruby)$"
)
_OTHERS = (ProvidedKind.PKGCONFIG, ProvidedKind.CMAKE, ProvidedKind.LIBRARY, ProvidedKind.MODULE)


def missing_programs(search: LogSearch) -> Iterator[tuple[int, str]]:
    """Yield the messages that say that a program is missing, and its name."""
    for line in search.steps.errors[:_MOST]:
        text = search.lines[line].text
        if span := search.steps.refusals.get(line):
            text = message_text(search.lines, span)
        if any(word in text for word in _WORDS) and (program := _missing(text)):
            yield line, program


def _missing(text: str) -> str:
    if (found := compiled(_RUN).search(text)) and _is_listed(found["program"]):
        return found["program"]
    for pattern in _SURE:
        if (found := compiled(pattern).search(text)) and _is_program(found["program"]):
            return found["program"]
    for pattern in _PERHAPS:
        found = compiled(pattern).search(text)
        if found and _is_program(found["program"]) and not _is_more(found["program"]):
            return found["program"]
    return ""


def _is_program(name: str) -> bool:
    return not compiled(_WORD).match(name.lower()) and _is_listed(name)


def _is_listed(name: str) -> bool:
    return bool(provider(ProvidedKind.PROGRAM, name))


def _is_more(name: str) -> bool:
    """Return whether a name is also that of a library or a module, which may be meant."""
    return any(provider(kind, name) for kind in _OTHERS)

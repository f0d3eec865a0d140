"""Makes the table of the words in which gcc, ld and make speak other languages than English.

    python release/translations.py FOLDER...

writes src/stoker/knowledge/translations.tsv. Each FOLDER has catalogues of messages by language, as
/usr/share/locale has them on Debian: gcc's are in the packages gcc-N-locales, those of make, ld and
the C library beside the programs. Only the messages of release/translation_messages.toml are taken:
those by which a failure is recognised.
"""

import gettext
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "src" / "stoker" / "knowledge" / "translations.tsv"
MESSAGES: dict[str, Any] = tomllib.loads(
    (ROOT / "release" / "translation_messages.toml").read_text()
)
QUOTES = "`'\"\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f"
COLON = "[:\uff1a]"
_VALUE = r"%(?:(?P<place>\d)\$)?(?P<quoted>q)?[+#<]*(?:p[A-Z]|[a-zA-Z])"
_HEAD = """
# The words in which gcc, ld, make and the C library speak other languages; made by
# release/translations.py of their catalogues. The first row has what shows a language. Columns:
# language, English, the other language; {1} is a value, and <1> one in any quotation marks.
"""


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]]
    found = [row for name in MESSAGES["languages"] for row in of_language(name, folders)]
    rows = sorted({*found, *map(tuple, MESSAGES["extra"])})
    marks = dict.fromkeys(f"{row[0]}={text}" for row in rows if (text := mark(*row[1:])))
    lines = [_HEAD.strip(), "\t".join(marks), *("\t".join(row) for row in rows)]
    TABLE.write_text("\n".join(lines) + "\n")
    print(f"{TABLE}: {len(rows)} rows, {TABLE.stat().st_size} bytes")


def of_language(name: str, folders: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """Yield the wanted messages: the language, English, and how it is said there."""
    places = [folder / name / "LC_MESSAGES" for folder in folders]
    for catalogue, wanted in MESSAGES["wanted"].items():
        known = [messages(file) for place in places for file in place.glob(f"{catalogue}.mo")]
        for line in wanted:
            message, _, instead = line.replace("\\n", "\n").partition("|")
            said = next((one[message] for one in known if one.get(message)), None)
            if said and said != message:
                plain = _without_place(said) if instead else said
                row = name, template(instead or message), template(plain)
                if _values(row[1]) == _values(row[2]):
                    yield row


def mark(english: str, said: str) -> str:
    """Return what shows the language of a message where it is one that almost every failure has."""
    if english.startswith("] "):
        return said.partition("{")[0]
    if english in MESSAGES["marks"] and english.endswith(": "):
        word = said.strip(" :\uff1a")
        return "" if word in ("error", "fatal error") else f": {word}"
    return said if english in MESSAGES["marks"] else ""


def _values(template: str) -> set[str]:
    return set(re.findall(r"[{<](\d)[}>]", template))


def messages(file: Path) -> dict[str, str]:
    with file.open("rb") as stream:
        catalogue: dict[Any, str] = vars(gettext.GNUTranslations(stream))["_catalog"]
        return {key: text for key, text in catalogue.items() if isinstance(key, str)}


def _without_place(said: str) -> str:
    """Return a message without the program, the place or the kind before it."""
    if "[%" in said:
        return re.sub(r"%s$", "", said[said.index("] ") :])
    if said.startswith("%s"):  # make's own name
        last = re.sub(rf"([{QUOTES}])\s?%s(?=[^{QUOTES}]*$)", r"\1", said)
        return re.sub(r"(?<=%[sd])%[sd]$|^%s\s?", "", last)
    parts = re.split(rf"{COLON}\s?", said.replace("\u00a0", " ").strip())
    return ": ".join(parts[-2:]) if said.rstrip().endswith(("%E", "%E\n")) else parts[-1].strip()


def template(message: str) -> str:
    """Return a message with numbered values; quoted ones are in angle brackets."""
    numbers = iter(range(1, 10))

    def value(found: re.Match[str]) -> str:
        number = found["place"] or next(numbers)
        return f"<{number}>" if found["quoted"] else f"{{{number}}}"

    whole = re.sub(r"%<.*?%>", "%qE", message)
    text = re.sub(_VALUE, value, whole)
    text = re.sub(rf"[{QUOTES}]\s?\{{(\d)\}}\s?[{QUOTES}]", r"<\1>", text)
    return text.replace("\n", "").replace("\t", " ").replace("\u00a0", " ")


if __name__ == "__main__":
    main()

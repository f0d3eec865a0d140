"""Pages in HTML: text and data from outside that stay text, templates, and what a page may run."""

from collections.abc import Iterable

from stoker.model.visible import visible, visible_in_json


def html_text(text: str) -> str:
    """Return a text for HTML or an attribute of it."""
    from html import escape  # it loads the table of all entities

    return escape(visible(text))


def json_in_page(json: str) -> str:
    """Return JSON for a script that shows the texts in it. An HTML parser takes it for text: it
    ends at no tag and starts no comment.
    """
    json = visible_in_json(json)
    for character in "<>&":
        json = json.replace(character, f"\\u{ord(character):04x}")
    return json


def allowed(contents: Iterable[str]) -> str:
    """Return the words of a content security policy that allow these scripts or styles only."""
    import base64
    import hashlib  # it loads OpenSSL

    digests = (hashlib.sha256(content.encode()).digest() for content in contents)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def filled_page(template: str, **parts: str) -> str:
    """Return the template with each ``{{name}}`` replaced; what is filled in is not searched."""
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)

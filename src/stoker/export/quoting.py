"""Values in the languages of exported files: each function writes a text so that no word of the
user becomes an instruction, an expression or a command. `filling.py` writes YAML.
"""

import json
import shlex
from collections.abc import Iterable


def docker_words(words: Iterable[str]) -> str:
    """Return a command for RUN: no shell reads it. BuildKit looks for here-documents and variables
    in the line, so their characters are escaped.
    """
    text = json.dumps(list(words))
    return text.replace("<", "\\u003c").replace("$", "\\u0024")


def github_command(words: Iterable[str]) -> str:
    """Return words for a shell, without the start of an expression of GitHub. A word with a dollar
    sign is in single quotes, which are closed and opened again between its two characters.
    """
    return shlex.join(words).replace("${{", "$''{{")


def without_variables(text: str) -> str:
    """Return a text in which GitLab, Cloud Build or Kubernetes finds no variable."""
    return text.replace("$", "$$")


def nix_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return f'"{escaped}"'.replace("\r", "\\r")  # Nix reads a bare one as the end of a line

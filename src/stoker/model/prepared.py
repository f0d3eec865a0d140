"""Makes types ready to be decoded in several threads.

msgspec builds its table of a struct when the struct is first decoded. A thread that decodes another
value meanwhile uses the table that is half built, and the process crashes (seen with msgspec 0.22).
Decoding and converting is therefore only done to a type that ``prepared`` returns.
"""

from threading import RLock
from typing import Any, TypeVar

import msgspec

Kind = TypeVar("Kind")
_ready: set[Any] = set()
_building = RLock()


def prepared(kind: Kind) -> Kind:
    """Return a type after msgspec has built its tables of all structs in it."""
    if kind not in _ready:
        with _building:
            msgspec.json.Decoder(kind)
            _ready.add(kind)
    return kind

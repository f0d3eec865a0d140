"""What a slimmed distribution says of itself: a small file in its dist-info folder. Pure."""

from collections.abc import Iterable

import msgspec

from stoker.deliver.slim.cuts import Cut, SlimRequest
from stoker.deliver.slim.selection import target_words
from stoker.model.slim import SlimRecord


def make_record(request: SlimRequest, changed: Iterable[Cut]) -> SlimRecord:
    return SlimRecord(
        targets=tuple(f"{gpu.arch}{'+ptx' if gpu.ptx else ''}" for gpu in request.gpus),
        label=target_words(request.gpus),
        private=any(cut.nvidia for cut in changed),
    )


def encode(record: SlimRecord) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record)) + b"\n"


def previous_label(content: bytes | None) -> str | None:
    """Of an earlier slimming, as far as its record can be read."""
    try:
        return msgspec.json.decode(content, type=SlimRecord).label if content else None
    except msgspec.DecodeError:
        return None

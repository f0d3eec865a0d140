"""What a slimmed distribution says of itself: a small file in its dist-info folder. Pure."""

from collections.abc import Iterable

import msgspec

from stoker.deliver.slim.cuts import Cut, SlimRequest
from stoker.deliver.slim.selection import target_words
from stoker.model.slim import SlimRecord


def make_record(
    request: SlimRequest, changed: Iterable[Cut], before: SlimRecord | None
) -> SlimRecord:
    """What is private stays so, whatever is cut later."""
    return SlimRecord(
        targets=tuple(f"{gpu.arch}{'+ptx' if gpu.ptx else ''}" for gpu in request.gpus),
        label=target_words(request.gpus),
        private=any(cut.nvidia for cut in changed) or (before is not None and before.private),
    )


def encode(record: SlimRecord) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record)) + b"\n"


def decode(content: bytes) -> SlimRecord | None:
    """Of an earlier slimming, if it can be read."""
    try:
        return msgspec.json.decode(content, type=SlimRecord)
    except msgspec.DecodeError:
        return None

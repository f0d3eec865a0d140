"""Where symbolic links of an archive lead, found out before there are any. Pure."""

from collections.abc import Mapping

_MOST_HOPS = 40  # as many as Linux follows
_MOST_STEPS = 500  # folders on the way, all hops together


def inside(link: str, links: Mapping[str, str]) -> bool:
    """Whether a link, with all the others in place, leads to somewhere in the tree.

    ``links`` maps the path of each to its target, as it is written there. Whether the goal exists
    is not asked.
    """
    here: list[str] = []
    ahead = link.split("/")[::-1]
    hops = steps = 0
    while ahead:
        part = ahead.pop()
        steps += 1
        if steps > _MOST_STEPS:
            return False
        if part == "..":
            if not here:
                return False
            here.pop()
        elif part not in ("", "."):
            here.append(part)
            if (target := links.get("/".join(here))) is not None:
                hops += 1
                if hops > _MOST_HOPS or target.startswith("/"):
                    return False
                here.pop()
                ahead += target.split("/")[::-1]
    return True

"""What differs between two plans."""

from stoker.model.plan import Place, Plan
from stoker.model.value import Value


class Difference(Value, frozen=True, kw_only=True):
    """``None`` on a side that does not set it at all."""

    place: Place
    name: str
    before: str | None
    after: str | None


def compare(before: Plan, after: Plan) -> tuple[Difference, ...]:
    """Settings that are not the same in both, in order of place and name."""
    old = {(s.place, s.name): s.value for s in (*before.environment, *before.cmake)}
    new = {(s.place, s.name): s.value for s in (*after.environment, *after.cmake)}
    return tuple(
        Difference(
            place=place, name=name, before=old.get((place, name)), after=new.get((place, name))
        )
        for place, name in sorted(old | new)
        if old.get((place, name)) != new.get((place, name))
    )

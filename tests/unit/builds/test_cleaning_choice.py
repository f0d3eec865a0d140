"""What is removed and what is kept."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.builds.cleaning import CleanupItem, CleanupKind, choose_items

ENTRIES = st.lists(
    st.builds(
        CleanupItem,
        kind=st.sampled_from(CleanupKind),
        name=st.text(max_size=3),
        path=st.just("/x"),
        size_bytes=st.integers(0, 10**12),
        used=st.integers(0, 100).map(float),
        busy=st.booleans(),
    ),
    max_size=20,
)


def entry(
    name: str, used: float, *, kind: CleanupKind = CleanupKind.BUILDS, busy: bool = False
) -> CleanupItem:
    return CleanupItem(kind=kind, name=name, path=f"/{name}", size_bytes=10, used=used, busy=busy)


def names(entries: tuple[CleanupItem, ...]) -> list[str]:
    return [kept.name for kept in entries]


def test_by_age() -> None:
    cleaning = choose_items(
        [entry("old", 1), entry("new", 9), entry("busy", 1, busy=True)], before=5
    )
    assert names(cleaning.chosen) == ["old"]
    assert cleaning.bytes == 10
    assert names(cleaning.spared) == ["new", "busy"]


def test_the_newest_of_each_kind_stay() -> None:
    runs = [entry(f"run{n}", n, kind=CleanupKind.RUNS) for n in range(4)]
    cleaning = choose_items([*runs, entry("build", 0)], before=10, keep=2)
    assert names(cleaning.chosen) == ["run1", "run0"]


@given(ENTRIES, st.integers(0, 100), st.integers(0, 5))
def test_nothing_is_lost_from_sight(entries: list[CleanupItem], before: int, keep: int) -> None:
    cleaning = choose_items(entries, before=before, keep=keep)
    assert sorted(map(str, (*cleaning.chosen, *cleaning.spared))) == sorted(map(str, entries))
    assert not any(kept.busy or kept.used > before for kept in cleaning.chosen)
    for kind in CleanupKind:
        of_kind = [kept for kept in entries if kept.kind is kind]
        left = [kept for kept in cleaning.spared if kept.kind is kind]
        assert len(left) >= min(keep, len(of_kind))

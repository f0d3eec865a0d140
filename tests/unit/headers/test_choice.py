"""Scans of sources, and the headers that are chosen from them."""

from stoker.headers.choice import (
    Candidate,
    Offer,
    Source,
    choose_beginnings,
    header_names,
    twins,
    within_memory,
)
from stoker.headers.scanning import has_repeated_text, read_folders, read_scan, words_in
from stoker.knowledge.shared_headers import Tolerance, header_rules
from stoker.model.headers import HeaderSharing, Scan, SharedHeader

LARGE = b"int large;\n" * 110_000
AUTO, ALWAYS = (
    header_rules().tolerance[word] for word in (HeaderSharing.AUTO, HeaderSharing.ALWAYS)
)
EXACT = Tolerance(headers=5, displaced=0, project=0, system=0)


def scan(*files: str, first: bytes = b"", after: bytes = b"") -> Scan:
    return read_scan(text(*files, first=first, after=after))


def text(*files: str, first: bytes = b"", after: bytes = b"") -> bytes:
    """Return what the preprocessor prints for a source that includes these headers one by one.
    ``first`` is in the source before them, ``after`` behind each of them.
    """
    parts = [b'# 0 "main.cpp"\n# 0 "<built-in>"\n#define __GNUC__ 14\n# 1 "main.cpp"\n', first]
    for number, file in enumerate(files):
        content = LARGE if file.startswith("large") else b"int small;\n"
        parts.append(b'# 1 "/i/%s" 1\n%s# %d "main.cpp" 2\n' % (file.encode(), content, number + 2))
        parts.append(after)
    return b"".join(parts)


def fits(shared: SharedHeader, scanned: Scan, tolerance: Tolerance = ALWAYS) -> bool:
    return Offer([shared], tolerance).largest(Source(scanned)) is not None


def chosen(scans: list[Scan], tolerance: Tolerance, served: int = 0) -> list[list[str]]:
    """Return the paths of each beginning that is chosen."""
    sources = [Source(each) for each in scans]
    sizes = [served] * len(sources)
    found = choose_beginnings(sources, sizes, most=5, tolerance=tolerance)
    return [[inclusion.path for inclusion in each.inclusions] for each in found]


def header(*files: str) -> SharedHeader:
    return SharedHeader(
        name="h", group=(), text="", scan=scan(*files), words=words_in(text(*files))
    )


def test_a_scan_knows_each_header_with_its_text_and_its_parent() -> None:
    found = read_scan(
        b'# 0 "m.cpp"\n'
        b'# 1 "/i/a.h" 1\n#define A 1\n'
        b'# 1 "/usr/include/s.h" 1 3\n#define S\nint s;\n# 2 "/i/a.h" 2\nint a;\n'
        b'# 1 "/i/late.h" 1\nint late;\n# 4 "/i/a.h" 2\n'
        b'# 2 "m.cpp" 2\n'
    )
    a, system, late = found.inclusions
    assert (a.path, a.parent, a.leading) == ("/i/a.h", "", True)
    assert (system.item, system.parent, system.of_system) == ("/usr/include/s.h", a.item, True)
    assert (late.parent, late.leading) == (a.item, False)
    assert [(m.names, m.owner, m.position) for m in found.macros] == [(("A",), a.item, 1)]


def test_a_header_is_the_same_whatever_else_was_included_before() -> None:
    alone = read_scan(b'# 0 "m"\n# 1 "/a" 1\nint x;\n# 1 "/b" 1\nint b;\n# 3 "/a" 2\nint y;\n')
    later = read_scan(b'# 0 "m"\n# 1 "/b" 1\nint b;\n# 2 "m" 2\n# 1 "/a" 1\nint x;\n\nint y;\n')
    other = read_scan(b'# 0 "m"\n# 1 "/a" 1\nint x;\n\nint z;\n')
    items = [{i.item for i in each.inclusions if i.path == "/a"} for each in (alone, later, other)]
    assert items[0] == items[1] != items[2]


def test_beginnings_are_what_several_sources_include_first() -> None:
    scans = [scan("large", f"own{n}") for n in range(12)]
    scans += [scan("large", "large2") for _ in range(30)]
    assert sorted(chosen(scans, AUTO)) == [["/i/large"], ["/i/large", "/i/large2"]]
    assert chosen(scans, AUTO, served=1 << 30) == []
    assert chosen(scans[:3], AUTO) == []


def test_a_beginning_ends_before_the_header_around_it_has_declarations() -> None:
    inner = b'# 1 "/i/large" 1\n%s# 2 "/i/own%d" 2\n%s'
    outer = b'# 0 "main.cpp"\n# 1 "/i/own%d" 1\n%s' + inner + b'# 2 "main.cpp" 2\n'
    first = [read_scan(outer % (n, b"#define X\n", LARGE, n, b"int o%d;\n" % n)) for n in range(12)]
    assert chosen(first, AUTO) == [["/i/large"]]
    later = [read_scan(outer % (n, b"int o%d;\n" % n, LARGE, n, b"")) for n in range(6)]
    assert chosen(later, AUTO) == []


def test_little_may_differ_in_order_and_before_a_header() -> None:
    small = tuple(f"a{n}" for n in range(20))
    assert fits(header("a", "b"), scan("a", "c", "b"), AUTO)
    assert not fits(header("a", "b"), scan("a", "c", "b"), EXACT)
    assert fits(header("a", "b"), scan("b", "a"), AUTO)
    assert not fits(header("a", "b"), scan("b", "a"), EXACT)
    assert not fits(header(*small), scan(*reversed(small)), AUTO)
    assert fits(header(*small), scan(*reversed(small)), ALWAYS)
    assert not fits(header("a"), scan("large", "a"), AUTO)
    assert fits(header("a"), scan("large", "a"), ALWAYS)
    assert fits(header("a"), scan("a", "large"), EXACT)


def test_text_that_a_second_inclusion_repeats_has_no_guard() -> None:
    assert has_repeated_text(text("a", "a"))
    assert not has_repeated_text(text("a", "b"))
    assert not has_repeated_text(text("a").replace(b"int small;", b"#define S") * 2)


def test_a_file_with_the_text_of_one_in_the_header_is_its_twin() -> None:
    assert twins(header("a"), scan("a", "b", "large")) == ("/i/b",)
    assert twins(header("a", "b"), scan("a", "b")) == ()


def test_the_text_names_what_a_search_finds() -> None:
    found = scan("a.h", "sub/b.h")
    assert header_names(found, ("/i", "/i/sub")) == ("a.h", "b.h")
    assert header_names(found, ("/elsewhere",)) == ()


def test_a_header_fits_a_source_that_includes_all_of_it_first() -> None:
    assert fits(header("a"), scan("a", "b"))
    assert fits(header("a", "b"), scan("b", "a"))
    assert not fits(header("a", "b"), scan("a"))
    assert not fits(header("a"), scan("a", first=b'extern "C" {\n'))
    assert fits(header("a"), scan("a", "b", after=b"int between;\n"))
    assert not fits(header("a", "b"), scan("a", "b", after=b"int between;\n"))


def test_a_macro_that_the_header_mentions_excludes_it() -> None:
    assert fits(header("a"), scan("a", first=b"// a comment\n#define OTHER 1\n"))
    assert not fits(header("a"), scan("a", first=b"#define small large\n"))
    assert fits(header("a"), scan("a", "b", after=b"#define small large\n"))
    assert not fits(header("a", "b"), scan("a", "b", after=b"#undef small\n"))


def test_a_source_uses_the_largest_header_that_fits() -> None:
    small, large, wrong = header("a"), header("a", "b"), header("a", "b", "c")
    assert Offer((small, wrong, large), AUTO).largest(Source(scan("a", "b", "d"))) == large
    assert not fits(wrong, scan("a"))


def test_only_gcc_says_where_it_searches() -> None:
    said = (
        "Using built-in specs.\ngcc version 14.2.0\n#include <...> search starts here:\n /a\n /b\n"
    )
    assert read_folders(said + "End of search list.\n") == ("/a", "/b")
    assert read_folders(said.replace("gcc version", "clang version")) is None


def candidate(*files: str, users: int, size: int) -> Candidate:
    return Candidate(header=header(*files), bytes=size, users=frozenset(range(users)))


def test_all_headers_are_kept_that_fit_into_memory_at_the_same_time() -> None:
    offered = [candidate("large", f"{n}", users=n, size=100) for n in range(1, 5)]
    kept = within_memory(offered, room=200, at_once=2)
    assert sorted(kept, key=str) == sorted((each.header for each in offered), key=str)
    assert within_memory(offered, room=99, at_once=2) == []
    assert within_memory([], room=0, at_once=2) == []


def test_headers_that_bring_most_for_their_memory_are_kept() -> None:
    few, many = (candidate("large", f"{n}", users=n, size=100) for n in (10, 50))
    huge = candidate("large", "large2", users=50, size=1000)
    assert within_memory([few, huge, many], room=150, at_once=4) == [many.header]
    assert within_memory([few, huge], room=250, at_once=4) == [few.header]


def test_a_header_counts_what_it_adds_to_the_others() -> None:
    base = candidate("large", users=50, size=100)
    more = candidate("large", "small", users=50, size=100)
    other = Candidate(header=header("large3"), bytes=100, users=frozenset({50, 51}))
    assert within_memory([more, base, other], room=200, at_once=4) == [more.header, other.header]

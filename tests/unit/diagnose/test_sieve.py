from io import BytesIO

from hypothesis import given
from hypothesis import strategies as st

from stoker.diagnose.cleaned import LONGEST
from stoker.diagnose.sieve import read_log

MEGABYTE = 1024**2
PLAIN = b"[1/9] Building CXX object native/ErrorReport.cpp.o -Wno-error\n"
ERROR = b"nvcc fatal   : Unsupported gpu architecture 'compute_30'\n"


def plain(size: int) -> bytes:
    return PLAIN * (size // len(PLAIN))


@given(st.lists(st.text(alphabet="ab:/ .", max_size=30), max_size=30))
def test_a_small_log_is_read_whole_with_the_numbers_of_its_lines(lines: list[str]) -> None:
    log = read_log(BytesIO("".join(f"{line}\n" for line in lines).encode()))
    assert [line.text for line in log.lines] == [line.rstrip() for line in lines]
    assert [line.number for line in log.lines] == list(range(1, len(lines) + 1))
    assert log.total == len(lines)


@given(st.binary(max_size=2000))
def test_any_bytes_will_do(content: bytes) -> None:
    log = read_log(BytesIO(content))
    assert log.total == content.count(b"\n") + (content[-1:] not in (b"", b"\n"))


def test_of_a_large_log_the_errors_are_kept_with_their_surroundings() -> None:
    before, after = plain(9 * MEGABYTE), plain(11 * MEGABYTE)
    log = read_log(BytesIO(before + b"first\n" + ERROR + b"then\n" + after))
    assert len(log.lines) * len(PLAIN) < 8 * MEGABYTE
    numbers = {line.text: line.number for line in log.lines}
    error = before.count(b"\n") + 2
    assert numbers[ERROR.decode().strip()] == error
    assert (numbers["first"], numbers["then"]) == (error - 1, error + 1)
    assert log.lines[-1].number == log.total == before.count(b"\n") + 3 + after.count(b"\n")


def test_no_line_is_kept_twice_and_all_are_in_order() -> None:
    content = b"".join(plain(MEGABYTE // 4) + ERROR for _ in range(40))
    numbers = [line.number for line in read_log(BytesIO(content)).lines]
    assert numbers == sorted(set(numbers))


def test_an_error_has_its_context_wherever_the_log_is_cut_into_parts() -> None:
    for shift in (0, 100, 4000):
        before = plain(6 * MEGABYTE)[: 6 * MEGABYTE - shift].rsplit(b"\n", 1)[0] + b"\n"
        content = before + b"above\n" + ERROR + b"below\n" + plain(7 * MEGABYTE)
        texts = [line.text for line in read_log(BytesIO(content)).lines]
        at = texts.index(ERROR.decode().strip())
        assert (texts[at - 1], texts[at + 1]) == ("above", "below")


def test_a_flood_of_errors_is_not_kept_whole() -> None:
    log = read_log(BytesIO(ERROR * (12 * MEGABYTE // len(ERROR))))
    assert sum(len(line.text) for line in log.lines) < 11 * MEGABYTE


def test_a_line_of_50_megabytes_comes_in_pieces() -> None:
    log = read_log(BytesIO(b"a\n" + b"error: x " * (50 * MEGABYTE // 9) + b"\nb\n"))
    assert log.total == 3
    assert max(len(line.text) for line in log.lines) <= LONGEST
    assert len(log.lines) < 1000
    assert (log.lines[0].text, log.lines[-1].text, log.lines[-1].number) == ("a", "b", 3)


def test_each_state_of_a_progress_bar_is_a_line() -> None:
    log = read_log(BytesIO(b" 10%\r 20%\rerror: no\r\nend\n"))
    assert [(line.number, line.text) for line in log.lines if line.text] == [
        (1, " 10%"),
        (1, " 20%"),
        (1, "error: no"),
        (2, "end"),
    ]


def test_what_a_windows_shell_redirects_is_read() -> None:
    content = "\ufefferror: no\r\nend\r\n".encode("utf-16-le")
    texts = [line.text for line in read_log(BytesIO(content)).lines]
    assert "end" in texts
    assert any("error: no" in text for text in texts)

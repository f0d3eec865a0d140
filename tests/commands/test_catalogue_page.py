"""The page of a catalogue in a real browser: search, filters, copying, keyboard, a phone."""

from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from browser import Browser
from catalogue_wheels import published, releases
from stoker.catalogue.document import with_wheels
from stoker.catalogue.people_page import people_page
from stoker.catalogue.values import PublishedCatalogue, PublishedWheel

Opened = Callable[..., Browser]

HOSTILE = "</script><img src=x onerror='document.title=1'><b id=injected>\"ä 日本\u2028"
WHEELS = (
    published("cu128-sm80", size_bytes=320_000_000),
    published("cu128-sm90", size_bytes=280_000_000),
    published("cu128-sm90a", size_bytes=290_000_000, verified=False, built="2026-10-01T00:00:00Z"),
    published("cu128-sm120+ptx", size_bytes=300_000_000),
    published("cpu", size_bytes=180_000_000),
    published("cpu-avx2", size_bytes=181_000_000, version="2.10.0"),
    published("cpu", family="aarch64"),
    published("cu128-sm90", project="flash-attn", version="2.8.3", requires=("torch", "einops")),
)


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Opened:
    """Write the page of a catalogue and open it; it loads nothing and logs nothing."""

    def open_page(*wheels: PublishedWheel) -> Browser:
        page = tmp_path / "index.html"
        page.write_bytes(people_page(with_wheels(PublishedCatalogue(), wheels or WHEELS)))
        browser.open(page)
        assert browser.requests() == [page.as_uri()]
        assert browser.console() == []
        return browser

    return open_page


def shown(page: Browser) -> list[str]:
    page.settle()
    names = page.texts("#list .name")
    variants = page.script(
        "return [...document.querySelectorAll('#list .facts')].map("
        "(line) => [...line.children].map((one) => one.textContent))"
    )
    return [f"{name}: {', '.join(facts)}" for name, facts in zip(names, variants, strict=True)]


def choose(page: Browser, field: str, text: str) -> None:
    """Choose the option that starts with the text."""
    select = Select(page.find(f"#{field}"))
    wanted = next(option.text for option in select.options if option.text.startswith(text))
    select.select_by_visible_text(wanted)


def test_search(opened: Opened) -> None:
    page = opened()
    assert page.find("#count").text == "8 of 8 wheels"
    page.find("#search").send_keys("flash")
    assert [line.partition(":")[0] for line in shown(page)] == ["flash-attn 2.8.3+cu128.sm90"]
    page.find("#search").clear()
    page.find("#search").send_keys("torch H100")
    assert page.find("#count").text == "2 of 8 wheels"
    page.find("#search").send_keys(" nothing")
    assert page.find("#count").text == "0 of 8 wheels"
    assert "No wheel matches" in page.find("#list").text


def test_filter_by_gpu(opened: Opened) -> None:
    """Only what runs on it, the best first, with the way in which it runs."""
    page = opened()
    choose(page, "gpu", "L40S")
    found = shown(page)
    assert len(found) == 1
    assert "compatible code (sm_80)" in found[0]
    choose(page, "gpu", "H100")
    page.find("#search").send_keys("torch")
    found = shown(page)
    assert [line.partition(":")[0] for line in found] == [
        "torch 2.9.1+cu128.sm90a",
        "torch 2.9.1+cu128.sm90",
    ]
    assert all("native code" in line for line in found)
    assert "not verified" in found[0]
    choose(page, "gpu", "no GPU")
    assert page.find("#count").text == "3 of 8 wheels"


def test_filter_by_cpu_and_order(opened: Opened) -> None:
    page = opened()
    choose(page, "gpu", "no GPU")
    choose(page, "cpu", "avx2")
    assert [line.partition(":")[0] for line in shown(page)] == [
        "torch 2.10.0+cpu.avx2",
        "torch 2.9.1+cpu",
    ]
    choose(page, "cpu", "x86_64_v2")
    assert [line.partition(":")[0] for line in shown(page)] == ["torch 2.9.1+cpu"]
    choose(page, "cpu", "armv9")
    assert "aarch64" in shown(page)[0]
    choose(page, "cpu", "any")
    choose(page, "order", "smallest first")
    assert "172 MiB" in shown(page)[0]


def test_what_is_inside_and_copying(opened: Opened) -> None:
    """Commands name the wheel by address and hash, and reach the clipboard."""
    page = opened()
    page.find("#search").send_keys("sm120")
    page.find("#list summary").click()
    page.settle()
    assert page.texts("#list th") == ["sm_120", "compute_120"]
    stoker, pip, uv = page.texts("#list code")
    base = page.driver.current_url.rpartition("/")[0]
    assert pip.startswith(
        f"pip install 'torch @ {base}/files/{'0' * 64}/torch-2.9.1%2Bcu128.sm120.ptx-"
    )
    assert pip.endswith(f".whl#sha256={'0' * 64}'")
    assert uv == f"uv {pip}"
    page.script(
        "window.copied = [];"
        "const write = (text) => { copied.push(text); return Promise.resolve(); };"
        "Object.defineProperty(navigator, 'clipboard', { value: { writeText: write } });"
    )
    page.find("#list .command button").click()
    page.settle()
    assert page.script("return window.copied") == [stoker]
    assert page.find("#list .command button").text == "Copied"


def test_copying_where_the_clipboard_is_refused(opened: Opened) -> None:
    page = opened()
    page.find("#list summary").click()
    page.script(
        "Object.defineProperty(navigator, 'clipboard',"
        " { value: { writeText: () => Promise.reject(new Error('no')) } });"
    )
    page.find("#list .command button").click()
    page.settle()
    assert page.script("return getSelection().toString()") == page.texts("#list code")[0]


def test_by_keyboard(opened: Opened) -> None:
    page = opened()
    keys = ActionChains(page.driver)
    keys.send_keys("/").send_keys("avx2").perform()
    assert page.find("#search").get_attribute("value") == "avx2"
    assert page.find("#count").text == "1 of 8 wheels"
    keys = ActionChains(page.driver)
    for _ in range(5):  # GPU, CPU, Python, order, the only wheel
        keys.send_keys(Keys.TAB)
    keys.send_keys(Keys.ENTER).perform()
    page.settle()
    assert page.find("#list details").get_attribute("open") is not None
    ActionChains(page.driver).send_keys(Keys.TAB, Keys.TAB).perform()
    assert page.script("return document.activeElement.textContent") == "Copy"


def test_on_a_phone(opened: Opened) -> None:
    """Nothing is wider than the screen, and targets are large enough for a finger."""
    page = opened()
    page.screen(375, 800, mobile=True)
    page.find("#list summary").click()
    page.settle()
    assert page.script("return document.documentElement.scrollWidth") <= 375
    assert page.script("return innerWidth") == 375
    heights = page.script(
        "return [...document.querySelectorAll('input, select, #list button')]"
        ".map((one) => one.getBoundingClientRect().height)"
    )
    assert min(heights) >= 40


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(opened: Opened, scheme: str) -> None:
    """Text has a contrast of at least 4.5 with what is behind it, in light and in dark."""
    page = opened()
    page.scheme(scheme)
    page.find("#list summary").click()
    page.settle()
    ratios = page.script(_CONTRAST)
    assert len(ratios) > 10
    assert min(ratio for _, ratio in ratios) >= 4.5, sorted(ratios, key=lambda row: row[1])[:3]


_CONTRAST = """
const part = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const light = (rgb) => 0.2126 * part(rgb[0]) + 0.7152 * part(rgb[1]) + 0.0722 * part(rgb[2]);
const read = (text) => text.match(/[\\d.]+/g).map(Number);
const behind = (one) => {
  for (; one; one = one.parentElement) {
    const rgb = read(getComputedStyle(one).backgroundColor);
    if (rgb.length < 4 || rgb[3] > 0) return rgb;
  }
  return [255, 255, 255];
};
const isText = (node) => node.nodeType === 3 && node.data.trim();
return [...document.querySelectorAll("main *")]
  .filter((one) => [...one.childNodes].some(isText) && one.checkVisibility())
  .map((one) => {
    const [a, b] = [light(read(getComputedStyle(one).color)), light(behind(one))];
    return [one.textContent.slice(0, 30), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
"""


def test_hostile_text(opened: Opened) -> None:
    page = opened(published("cpu", blas=HOSTILE, requires=(HOSTILE,)))
    page.find("#list summary").click()
    page.settle()
    assert page.driver.title == "Wheels by hardware"
    assert page.script("return document.getElementById('injected')") is None
    assert HOSTILE.replace("\u2028", "") in page.find("#list dl").text.replace("\u2028", "")
    assert page.console() == []


def test_an_empty_catalogue(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_bytes(people_page(PublishedCatalogue()))
    browser.open(page)
    assert browser.find("#list").text == "The catalogue is empty."


def test_a_thousand_wheels(opened: Opened) -> None:
    """Only some are drawn at a time; all are searched."""
    page = opened(*releases(1000))
    assert page.find("#count").text == "1000 of 1000 wheels"
    assert len(page.texts("#list .name")) == 50
    page.find("#more").click()
    assert len(page.texts("#list .name")) == 100
    page.find("#search").send_keys("2.7.3+")
    assert [line.partition(":")[0] for line in shown(page)] == ["torch 2.7.3+cu128.sm90"]
    choose(page, "gpu", "T4")
    assert page.find("#count").text == "0 of 1000 wheels"


def test_the_filters_are_in_the_address(opened: Opened) -> None:
    page = opened()
    page.find("#search").send_keys("flash")
    choose(page, "gpu", "H100")
    page.settle()
    assert page.script("return location.hash") == "#q=flash&gpu=H100"
    chosen = "return document.getElementById('gpu').selectedOptions[0].text"
    assert page.script(chosen) == "H100 (9.0)"
    page.script("location.hash = '#gpu=l40s'")
    page.settle()
    assert page.script(chosen) == "L40S (8.9)"
    page.script("location.hash = '#q=2.10&order=new'")
    page.settle()
    assert [line.partition(":")[0] for line in shown(page)] == ["torch 2.10.0+cpu.avx2"]
    assert page.script("return document.getElementById('gpu').value") == ""
    page.script("location.hash = '#gpu=unknown'")
    page.settle()
    assert len(shown(page)) == len(WHEELS)


def test_a_wheel_names_the_command_of_stoker(opened: Opened, tmp_path: Path) -> None:
    page = opened(WHEELS[1])
    page.find("#list summary").click()
    page.settle()
    commands = page.texts("#list .command code")
    assert commands[0] == f"stoker install {tmp_path}/ torch==2.9.1"
    assert page.texts("#count") == ["1 of 1 wheel"]

"""Headless Chromium for tests of pages: Debian's, driven by its own chromedriver.

Pages are opened from files. The browser resolves no host name, and every request and every message
on the console is recorded.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--force-prefers-reduced-motion",  # scrolling is done at once
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # for servers of the test itself
)
_WIDTH, _HEIGHT = 1300, 1000


class Browser:
    """One window. ``driver`` is selenium's, for what has no method here."""

    def __init__(self, driver: Chrome):
        self.driver: Any = driver  # parts of selenium have no types

    def reset(self) -> None:
        """Leave the page, and undo ``screen`` and ``scheme``."""
        self.driver.get("about:blank")
        self.screen(_WIDTH, _HEIGHT)
        self.scheme("")

    def screen(self, width: int, height: int, *, mobile: bool = False) -> None:
        """Show pages on a screen of this size; each pixel of the page is one of the screen."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scheme(self, name: str) -> None:
        """Prefer ``light`` or ``dark``; an empty name prefers nothing."""
        features = [{"name": "prefers-color-scheme", "value": name}] if name else []
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, page: Path) -> None:
        self.driver.get_log("performance")  # what an earlier page did
        self.driver.get_log("browser")
        self.driver.get(page.as_uri())

    def console(self) -> list[str]:
        """Return what was written to the console since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return the addresses that were requested since the page was opened. Data in the page
        itself, such as its icon, is no request.
        """
        entries = (json.loads(entry["message"]) for entry in self.driver.get_log("performance"))
        messages = (entry["message"] for entry in entries)
        addresses = (
            str(message["params"]["request"]["url"])
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        )
        return [address for address in addresses if not address.startswith("data:")]

    def find(self, selector: str) -> WebElement:
        found: WebElement = self.driver.find_element(By.CSS_SELECTOR, selector)
        return found

    def texts(self, selector: str) -> list[str]:
        """Return the text of every element that fits, in the order of the page."""
        return [found.text for found in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    def script(self, code: str, *values: object) -> Any:
        """Run it in the page and return its value; canvases are up to date afterwards."""
        drawn = "const done = arguments[arguments.length - 1];"
        wait = "requestAnimationFrame(() => requestAnimationFrame(() => done(value)));"
        body = f"{drawn} const value = (() => {{ {code} }}).apply(null, arguments); {wait}"
        return self.driver.execute_async_script(body, *values)

    def settle(self) -> None:
        """Wait until what was changed is drawn."""
        self.script("return null;")

    def point(self, element: WebElement, x: int, y: int) -> ActionChains:
        """Return actions that begin with the pointer at a place counted from the top left."""
        box = element.size
        chain = ActionChains(self.driver, duration=10)
        return chain.move_to_element_with_offset(
            element, x - box["width"] // 2, y - box["height"] // 2
        )


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Give a browser, which ends with the block. ``chromium`` and ``chromedriver`` must exist."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for option in _OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    try:
        browser = Browser(driver)
        browser.reset()
        yield browser
    finally:
        driver.quit()

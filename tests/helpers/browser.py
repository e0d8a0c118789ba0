"""Chromium, for pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
HOSTILE = '</script><img src=x onerror="alert(1)">&"\'\u2028'

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver (Debian: chromium chromium-driver)"
)


@contextmanager
def start_browser(profile: Path) -> Iterator[Any]:
    """Chromium without a window, in a profile of its own."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no Chromium")
    from selenium import webdriver  # noqa: PLC0415

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    switches = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    switches += "disable-component-update disable-sync disable-dev-shm-usage hide-scrollbars window-size=1200,900"
    for switch in switches.split():
        options.add_argument(f"--{switch}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(60)
    try:
        yield driver
    finally:
        driver.quit()


def choose(browser: Any, control: str, value: str) -> None:
    """Choose an option of a control."""
    script = (
        "const c = document.getElementById(arguments[0]); c.value = arguments[1]; c.dispatchEvent(new Event('change'))"
    )
    browser.execute_script(script, control, value)


def text_of(browser: Any, element: str) -> str:
    """Return the text of an element."""
    return str(browser.execute_script("return document.getElementById(arguments[0]).textContent", element))

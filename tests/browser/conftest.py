"""A real browser: Debian's chromium, driven by selenium through Debian's chromium-driver."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        line = "The browser is not tested: install Debian's chromium and chromium-driver."
        if os.environ.get("REQUIRE_SERVICES") == "1" and shutil.which("apt-get") and os.geteuid() == 0:
            pytest.fail(line)
        pytest.skip(line)
    options = Options()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1300,900",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    chrome.set_page_load_timeout(30)
    chrome.implicitly_wait(10)
    yield chrome
    chrome.quit()


@pytest.fixture
def pictures() -> Path:
    """Where the screenshots go, for a person to look at."""
    path = Path(os.environ.get("TEST_PICTURES", "var/pictures"))
    path.mkdir(parents=True, exist_ok=True)
    return path

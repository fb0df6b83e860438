"""A real browser without a window, for the tests that look at pages."""

import os
import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DRIVERS = ("chromedriver", "chromium.chromedriver")


def found(names):
    """The path of the first of these programs that is installed, or None."""
    return next(filter(None, map(shutil.which, names)), None)


def start(width=1280, height=900):
    """A headless Chromium that keeps its console messages. Without the browser, its driver or selenium the test is skipped."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser, driver = found(BROWSERS), found(DRIVERS)
    if not browser or not driver:
        pytest.skip("Chromium and chromedriver are not both on the PATH (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in ("headless=new", "disable-gpu", "disable-dev-shm-usage", f"window-size={width},{height}"):
        options.add_argument(f"--{flag}")
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium's sandbox refuses to work for root
    return webdriver.Chrome(options, webdriver.ChromeService(driver))

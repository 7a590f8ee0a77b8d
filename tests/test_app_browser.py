"""The page of hf-elmo app in a real browser that reaches this machine only, and by its own interface.

A browser is not part of the test environment. Its test runs where the system has chromium, as in CI (`.ci/run`), and
is skipped elsewhere.
"""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HAS_BROWSER = importlib.util.find_spec("playwright") is not None and CHROMIUM is not None

pytestmark = pytest.mark.slow
in_a_browser = pytest.mark.skipif(not HAS_BROWSER, reason="needs playwright (pip) and chromium (of the system)")
NOWHERE = "http://127.0.0.1:9"  # the port at which everything is thrown away
PATIENCE = 120  # seconds


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Of the page, served by the command, which can reach no other machine by HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), NOWHERE)
    environment = {**os.environ, **proxies, "GRADIO_ANALYTICS_ENABLED": "True"}
    command = [sys.executable, "-m", "hf_elmo", "app", "--port", str(port)]
    log = tmp_path_factory.mktemp("app") / "log.txt"
    with open(log, "w", encoding="utf-8") as file:
        server = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_for(f"http://127.0.0.1:{port}/", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def wait_for(address, server, log):
    for _ in range(PATIENCE * 2):
        assert server.poll() is None, log.read_text(encoding="utf-8")
        try:
            urllib.request.urlopen(address, timeout=5).read()
            return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"the page did not come up: {log.read_text(encoding='utf-8')}")


def ask(address, *values):
    """What the page answers to a program."""
    request = urllib.request.Request(
        f"{address}/gradio_api/call/ask",
        data=json.dumps({"data": values}).encode(),
        headers={"Content-Type": "application/json"},
    )
    event = json.load(urllib.request.urlopen(request, timeout=PATIENCE))["event_id"]
    answer = urllib.request.urlopen(f"{address}/gradio_api/call/ask/{event}", timeout=PATIENCE).read().decode()
    assert "event: complete" in answer
    return json.loads(answer.split("data: ")[-1].strip())


def test_programs_can_ask(address):
    message, neighbors, heat_map, surprisal, _ = ask(
        address, "A river bank .\nThe bank closed .", 0, 2, False, "words"
    )
    assert message == ""
    assert "layer 2: in context" in neighbors
    assert "elmo-heat" in heat_map
    assert "base64" in surprisal
    assert "There is nothing to read yet" in ask(address, "", 0, 0, True, "words")[0]


def test_the_space_makes_the_page():
    code = "import runpy, sys; print(type(runpy.run_path(sys.argv[1])['demo']).__name__)"
    app = Path(__file__).parents[1] / "space" / "app.py"
    made = subprocess.run([sys.executable, "-c", code, app], capture_output=True, text=True)
    assert made.stdout.split() == ["Blocks"], made.stderr


@in_a_browser
def test_the_page_in_a_browser(address, tmp_path):
    from playwright.sync_api import sync_playwright

    asked, complaints = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        )
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.set_default_timeout(1000 * PATIENCE)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda told: complaints.append(told.text) if told.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        walk_through(page, Path(os.environ.get("HF_ELMO_SCREENSHOTS", tmp_path)))
        browser.close()
    elsewhere = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
    assert (elsewhere, complaints) == ([], [])


def walk_through(page, pictures):
    """What a visitor does; a picture of each step."""
    neighbors = page.locator("#neighbors")
    neighbors.locator("table").first.wait_for()
    assert "bank" in neighbors.locator(".elmo-query b").inner_text()
    assert neighbors.locator("table").count() == 3
    page.screenshot(path=pictures / "neighbors.png")
    page.locator("#word label", has_text="river").click()
    neighbors.locator(".elmo-query b", has_text="river").wait_for()

    page.locator("#sentences textarea").fill("They play football.\nThe play was a comedy by Shakespeare.")
    page.locator("#read").click()
    neighbors.locator(".elmo-query b", has_text="play").wait_for()
    page.get_by_role("tab", name="Layers").click()
    page.locator("#heat-map .elmo-heat td").last.wait_for()
    assert page.locator("#heat-map table").count() == 3
    page.screenshot(path=pictures / "layers.png")
    page.locator("#comparison label", has_text="all words").click()
    page.locator("#heat-map .elmo-words").first.wait_for()
    page.screenshot(path=pictures / "words.png")

    page.get_by_role("tab", name="Surprisal").click()
    picture = page.locator("#surprisal img")
    picture.wait_for()
    assert picture.evaluate("image => image.naturalWidth") > 300
    page.screenshot(path=pictures / "surprisal.png")

    for text, says in (("  ", "There is nothing to read yet"), ("word " * 61, "Sentence 1 has 61 words")):
        page.locator("#sentences textarea").fill(text)
        page.locator("#read").click()
        page.locator("#message .elmo-problem", has_text=says).wait_for()
    page.screenshot(path=pictures / "problem.png")
    page.locator("#sentences textarea").fill("<img src=x onerror=alert(1)> bank\na bank")
    page.locator("#read").click()
    page.locator("#message .elmo-problem").wait_for(state="hidden")
    assert page.locator("img[src=x]").count() == 0

"""A conversation on the page, in a headless Chromium."""

import os
import time

import serving
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from serving import ANSWER, QUESTION

server = serving.Server()
options = webdriver.ChromeOptions()
options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=900,760"]:
    options.add_argument(argument)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
browser = webdriver.Chrome(options=options, service=Service(os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver")))


def until(what, condition):
    return WebDriverWait(browser, 60).until(lambda _: condition(), what)


def find(selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def ask(text):
    find("#text")[0].send_keys(text + Keys.ENTER)


def idle():
    return find("#send")[0].is_displayed()


def answers():
    return [element.text for element in find(".answer")]


def greets():
    browser.get(server.url)
    until("the model's name", lambda: "1024 tokens" in find("#model")[0].text)


def answers_a_question():
    ask(QUESTION)
    until("the answer", lambda: idle() and answers() and answers()[-1] == ANSWER)
    assert "tok/s" in find(".figures")[-1].text, find(".figures")[-1].text
    folded = find("details")[-1]
    assert folded.get_attribute("open") is None and folded.find_element(By.TAG_NAME, "summary").text == "Thought"
    folded.find_element(By.TAG_NAME, "summary").click()
    until("the thinking", lambda: "12" in folded.text)


def stops_and_asks_again():
    ask("Tell me a story about an owl.")
    until("a beginning", lambda: find("#stop")[0].is_displayed() and (answers()[-1:] != [ANSWER]))
    time.sleep(0.5)
    find("#stop")[0].click()
    until("the end", idle)
    assert find(".odd")[-1].text == "Stopped.", find(".odd")[-1].text
    count = len(find(".message"))
    find("#again")[0].click()
    until("another reply", lambda: idle() and "tok/s" in find(".figures")[-1].text)
    assert len(find(".message")) == count and len(answers()[-1]) > 40, answers()


def renders_markdown_and_no_markup():
    source = "# Title\n\nA **bold** `code` <img src=x onerror=alert(1)> [l](https://a.example) [x](javascript:alert(1))\n\n" \
        "- one\n- two\n\n```rust\nfn main() {}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted"
    shown = browser.execute_script(
        "const box = document.createElement('div'); box.append(...markdown(arguments[0]));"
        "return [box.innerHTML, box.querySelectorAll('img, script').length, box.querySelectorAll('a').length];", source)
    html, foreign, links = shown
    assert foreign == 0 and links == 1, shown
    for part in ["<h2", "<strong>bold</strong>", "<code>code</code>", "&lt;img", "<li>two</li>", "fn main() {}</code>",
                 "<th>a</th>", "<blockquote>"]:
        assert part in html, (part, html)


def draws_a_stream_as_it_draws_the_whole():
    source = "# Title\n\nA `b\n\n- one\n- two\n\n```rust\nfn a() {}\n\n\nfn b() {}\n```\ntext\n  ```\nx\n\ny\n```\n\n" \
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n> > twice\n\n1. one\n\n2. two\n\nThe end"
    shown = browser.execute_script(
        "const whole = document.createElement('div'); whole.append(...markdown(arguments[0]));"
        "const reply = new Reply(); reply.box.remove();"
        "for (let at = 1; at <= arguments[0].length; at++) { reply.answer = arguments[0].slice(0, at); reply.render(); }"
        "return [reply.shown.innerHTML, whole.innerHTML, reply.settled];", source)
    assert shown[0] == shown[1] and shown[2] == source.index("The end"), shown


def stands_what_repeats_itself():
    for source in ["[" * 40_000, "[a](" * 20_000, "> " * 5_000 + "end", "*a" * 20_000, "`a`" * 100_000]:
        took = browser.execute_script(
            "const start = performance.now(); document.createElement('div').append(...markdown(arguments[0]));"
            "return performance.now() - start;", source)
        assert took < 1000, (source[:8], took)


def drops_what_failed():
    browser.execute_script(
        "window.real = window.fetch; const error = JSON.stringify({error: {message: 'Loading model'}});"
        "window.fetch = async () => new Response(error, {status: 503});")
    ask(QUESTION)
    until("the failure", lambda: idle() and find(".odd") and find(".odd")[-1].text == "Loading model")
    assert browser.execute_script("window.fetch = window.real; return messages.at(-1).role;") == "user"
    count = len(find(".message"))
    find("#again")[0].click()
    until("the answer", lambda: idle() and answers()[-1] == ANSWER)
    assert len(find(".message")) == count and browser.execute_script("return messages.at(-2).content;") == QUESTION


def breaks_no_rule():
    log = [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
    assert not log, log
    if "PICTURE" in os.environ:
        browser.save_screenshot(os.environ["PICTURE"])


def begins_anew():
    ask("Tell me a story about an owl.")
    until("a reply", lambda: find("#stop")[0].is_displayed())
    find("#clear")[0].click()
    assert not find(".message") and idle() and not find("#stop")[0].is_displayed()
    find("#text")[0].send_keys(QUESTION)
    find("#send")[0].click()
    until("the answer", lambda: idle() and answers() == [ANSWER])


with server:
    try:
        serving.run([greets, answers_a_question, stops_and_asks_again, renders_markdown_and_no_markup,
                     draws_a_stream_as_it_draws_the_whole, stands_what_repeats_itself, drops_what_failed, begins_anew,
                     breaks_no_rule])
    finally:
        browser.quit()

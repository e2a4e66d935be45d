"""Conversations on the page, in a headless Chromium."""

import json
import os
import pathlib
import tempfile

import serving
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from serving import ANSWER, QUESTION

server = serving.Server("--temp", "0")
options = webdriver.ChromeOptions()
options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=900,760"]:
    options.add_argument(argument)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
downloads = tempfile.TemporaryDirectory()
options.add_experimental_option("prefs", {"download.default_directory": downloads.name})
browser = webdriver.Chrome(options=options, service=Service(os.environ.get("CHROMEDRIVER", "/usr/bin/chromedriver")))


def until(what, condition):
    drawn_again = [StaleElementReferenceException]
    return WebDriverWait(browser, 60, ignored_exceptions=drawn_again).until(lambda _: condition(), what)


def find(selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def run(script, *arguments):
    return browser.execute_script(script, *arguments)


def texts(selector):
    """What is read of all these elements at one moment: the page may draw them again at the next."""
    read = "one => one.checkVisibility() ? one.innerText.trim() : ''"
    return run(f"return Array.from(document.querySelectorAll(arguments[0]), {read})", selector)


def button(label, within="body"):
    """The shown button with this text or name."""
    shown = [one for one in find(within + " button") if one.is_displayed()]
    return next(one for one in reversed(shown) if label in (one.text, one.get_attribute("aria-label")))


def click(label, within="body"):
    until(label, lambda: button(label, within).click() is None)


def choose(at):
    """Opens a conversation of the list."""
    until("the list", lambda: find("#list .name")[at].click() is None)
    until("the conversation", lambda: find("#list .name")[at].get_attribute("aria-current"))


def delete():
    open_one = texts("#list .name[aria-current]")[0]
    before = names().count(open_one)
    click("Delete")
    until("the list", lambda: names().count(open_one) == before - 1)


def rename(name):
    click("Rename")
    find("#list input")[0].send_keys(name + Keys.ENTER)
    until("the name", lambda: name in [name.removeprefix("… ") for name in names()])


def ask(text):
    find("#text")[0].send_keys(text + Keys.ENTER)


def idle():
    return find("#send")[0].is_displayed()


def answers():
    return texts(".answer")


def said():
    return texts(".said")


def odd():
    return texts(".odd")[-1].split("\n")[0]


def names():
    return texts("#list .name")


def notice():
    return texts("#notice [role=status]")[0]


def answered(words=ANSWER):
    until("the answer", lambda: idle() and answers() and answers()[-1] == words)


def interrupt():
    """Asks for a long reply, and waits until a part of it is there."""
    ask("Tell me a story about an owl.")
    until("a beginning", lambda: not idle() and len(answers()[-1]) > 10)


# What the page receives of a reply after its first 8000 bytes waits for `held` to be false, or for the page to stop it.
HOLD = """
window.held = true;
const fetched = window.fetch;
window.fetch = async (path, options) => {
  const response = await fetched(path, options);
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) return response;
  let passed = 0;
  const gate = new TransformStream({
    async transform(bytes, out) {
      for (let at = 0; at < bytes.length; at += 1000) {
        while (window.held && passed > 8000 && !options.signal.aborted)
          await new Promise(then => setTimeout(then, 20));
        const part = bytes.subarray(at, at + 1000);
        passed += part.length;
        out.enqueue(part);
      }
    },
  });
  return new Response(response.body.pipeThrough(gate), response);
};
"""


def greets():
    until("the model's name", lambda: "1024 tokens" in find("#model")[0].text)
    assert len(find("#examples button")) == 3 and find("#first")[0].is_displayed() and names() == []
    find("#examples button")[0].click()
    answered()
    assert said() == [QUESTION] and names() == [QUESTION] and not find("#first")[0].is_displayed()


def folds_thinking_and_figures():
    for folded, summary, inside in [(".thinking", "Thought", "12"), (".figures", "Figures", "tok/s")]:
        folded = find(folded)[-1]
        assert folded.get_attribute("open") is None and folded.text == summary, folded.text
        folded.find_element(By.TAG_NAME, "summary").click()
        until(summary, lambda: inside in folded.text)


def examples_leave_the_draft():
    click("New")
    find("#text")[0].send_keys("A draft")
    find("#examples button")[0].click()
    answered()
    assert find("#text")[0].get_attribute("value") == "A draft"
    find("#text")[0].clear()
    delete()
    choose(0)
    answered()


def is_kept_by_a_reload():
    find("#text")[0].send_keys("A draft")
    browser.refresh()
    until("the conversation", lambda: answers() == [ANSWER])
    assert said() == [QUESTION] and find("#text")[0].get_attribute("value") == "A draft"
    find("#text")[0].clear()


def keeps_what_a_reload_interrupts():
    interrupt()
    # Nothing of it is stored later than the page ends.
    run("store.put = async () => true; window.shown = () => talk.messages.at(-1).content.length;"
        "window.onbeforeunload = () => { sessionStorage.shown = window.shown(); };")
    before = run("return window.shown()")
    until("more", lambda: run("return window.shown()") > before)
    browser.refresh()
    until("the beginning of the reply", lambda: len(answers()) == 2 and odd() == "This reply was interrupted.")
    assert run("return talk.messages.at(-1).content.length >= sessionStorage.shown && !!sessionStorage.shown")
    assert run("return Object.keys(localStorage).filter(name => name.startsWith(ARRIVED))") == []
    click("Retry")
    until("another reply", lambda: idle() and find(".figures"))


def stops_and_asks_again():
    interrupt()
    run("document.activeElement.blur()")
    find("body")[0].send_keys(Keys.ESCAPE)
    until("the end", idle)
    count, kept = len(find(".message")), answers()[-1]
    assert odd() == "Stopped."
    click("Retry")
    until("another reply", lambda: idle() and odd() == "" and len(answers()[-1]) > 40)
    assert len(find(".message")) == count
    click("Previous version")
    assert answers()[-1] == kept and odd() == "Stopped."
    click("Next version")
    click("Regenerate")
    until("a third reply", lambda: idle() and odd() == "" and "3/3" in find(".actions")[-1].text)


def edits_a_message():
    click("New")
    ask("What is one plus one?")
    until("a reply", lambda: idle() and find(".figures"))
    click("Edit")
    field = find(".edit textarea")[0]
    assert field.get_attribute("value") == "What is one plus one?"
    field.send_keys(Keys.ESCAPE)
    assert said() == ["What is one plus one?"]
    click("Edit")
    find(".edit textarea")[0].clear()
    find(".edit textarea")[0].send_keys(QUESTION + Keys.ENTER)
    answered()
    assert said() == [QUESTION]
    click("Previous version")
    assert said() == ["What is one plus one?"]
    click("Next version")


def breaks_lines_with_shift():
    find("#text")[0].send_keys("one" + Keys.SHIFT + Keys.ENTER + Keys.NULL + "two")
    assert find("#text")[0].get_attribute("value") == "one\ntwo"
    find("#text")[0].clear()


def copies():
    run("window.copies = []; Object.defineProperty(navigator, 'clipboard', { configurable: true, value: "
        "{ writeText: async text => { window.copies.push(text); } } });")
    click("Copy the reply")
    run("document.querySelector('.answer').append(...markdown('```rust\\nfn main() {}\\n```'));")
    # The button says so for a second and a half, which a slow machine can miss.
    run("window.read = []; const copy = document.querySelector('[aria-label=\"Copy the code\"]');"
        "new MutationObserver(() => window.read.push(copy.textContent)).observe(copy, { childList: true });")
    click("Copy the code")
    until("the button", lambda: "Copied" in run("return window.read"))
    assert run("return window.copies") == [ANSWER, "fn main() {}"]
    run("Object.defineProperty(navigator, 'clipboard', { value: undefined });")
    assert run("return copied('without a clipboard').then(done => done)"), "the older way"
    run("show()")


def says_blocks_and_not_tokens():
    assert find("#spoken")[0].get_attribute("aria-live") == "polite"
    run("window.changes = 0; new MutationObserver(list => { window.changes += list.length; })"
        ".observe(document.getElementById('spoken'), { childList: true });")
    shown = run("return isSeen(document.querySelector('#notice [role=status]'))")
    assert shown, "a screen reader watches only what is displayed"
    source = "- [x] one\n\n  ```rust\n  f()\n  ```\n- two"
    words = run("const [block] = markdown(arguments[0]); return wordsOf(block);", source)
    assert words.split() == ["one", "f()", "two"], words
    ask(QUESTION)
    answered()
    heard = [line.get_attribute("textContent") for line in find("#spoken p")]
    assert heard == ["The model is replying.", ANSWER, "The reply is complete."], heard
    assert run("return window.changes") <= 5


def every_control_has_a_name():
    nameless = run(
        "return [...document.querySelectorAll('button, input:not([hidden]), textarea, a')].filter(one => "
        "!one.textContent.trim() && !one.ariaLabel && !one.labels?.length).map(one => one.outerHTML)")
    assert nameless == [], nameless


def sends_settings():
    click("Settings")
    assert find("[name=temperature]")[0].get_attribute("placeholder") == "0"
    find("[name=system]")[0].send_keys("Be brief.")
    find("[name=temperature]")[0].send_keys("0.5")
    find("[name=seed]")[0].send_keys("7")
    find("[name=max_tokens]")[0].send_keys("3")
    find("[name=think]")[0].click()
    click("Done")
    run("window.real = window.fetch; window.fetch = (path, options) => { window.sent = options.body; "
        "return window.real(path, options); };")
    ask(QUESTION)
    until("the reply", lambda: idle() and "cut off" in odd())
    sent = json.loads(run("return window.sent"))
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}, sent
    assert sent["messages"][-1]["content"] == QUESTION, sent
    assert [sent.get(name) for name in ["temperature", "top_p", "seed", "max_tokens"]] == [0.5, None, 7, 3], sent
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    browser.refresh()
    until("the conversation", answers)
    click("Settings")
    assert find("[name=seed]")[0].get_attribute("value") == "7"
    click("Reset")
    click("Done")


def lists_conversations():
    before = names()
    click("New")
    ask(QUESTION)
    answered()
    assert names() == [QUESTION, *before]
    rename("Sums")
    assert names() == ["Sums", *before] and browser.title == "Sums – wglm"
    choose(1)
    assert names()[0] == "Sums" and len(answers()) > 1
    choose(0)
    assert answers() == [ANSWER]


def exports_and_imports():
    path = pathlib.Path(downloads.name)
    click("Export .md")
    until("the file", (path / "Sums.md").exists)
    assert (path / "Sums.md").read_text() == f"# Sums\n\n## User\n\n{QUESTION}\n\n## Assistant\n\n{ANSWER}\n"
    click("Export .json")
    until("the file", (path / "Sums.json").exists)
    click("Delete")
    until("the notice", lambda: notice() == "“Sums” is deleted." and "Sums" not in names())
    find("#file")[0].send_keys(str(path / "Sums.json"))
    until("the conversation", lambda: answers() == [ANSWER] and "Sums" in names())
    find("#file")[0].send_keys(str(path / "Sums.md"))
    until("the reason", lambda: "it is not JSON" in notice())


def imports_nothing_older():
    path = pathlib.Path(downloads.name) / "Older.json"
    click("New")
    interrupt()
    rename("Older")
    click("Export .json")
    until("the file", path.exists)
    rename("Newer")
    find("#file")[0].send_keys(str(path))  # while the reply arrives, and later again
    until("the reply", lambda: idle() and odd() == "" and find(".figures"))
    whole = answers()
    run("hideNotice()")
    find("#file")[0].send_keys(str(path))
    until("the notice", lambda: notice() == "1 conversation is imported.")
    assert answers() == whole and names()[0] == "Newer"
    browser.refresh()
    until("the conversation", lambda: answers() == whole and names()[0] == "Newer")
    delete()
    choose(0)


def undoes_a_deletion():
    click("Delete")
    until("the notice", lambda: notice() == "“Sums” is deleted." and "Sums" not in names())
    click("Undo")
    until("the conversation", lambda: answers() == [ANSWER] and "Sums" in names())
    delete()
    until("the field", lambda: run("return document.activeElement.id") == "text")
    find("#text")[0].send_keys(Keys.CONTROL + "z" + Keys.NULL)
    until("the conversation", lambda: answers() == [ANSWER] and "Sums" in names())
    delete()
    browser.refresh()
    until("the list", names)
    assert "Sums" not in names()


def shares_conversations_between_windows():
    ask(QUESTION)
    answered()
    first = browser.current_window_handle
    browser.switch_to.new_window("window")
    browser.get(server.url)
    until("the list", names)
    choose(0)
    ask("What is one plus one?")
    until("a reply", lambda: idle() and len(answers()) == 2)
    browser.close()
    browser.switch_to.window(first)
    until("the other window's message", lambda: len(answers()) == 2)


def another_window():
    """Opens the newest conversation in a second window, and returns both windows."""
    first = browser.current_window_handle
    browser.switch_to.new_window("window")
    browser.get(server.url)
    until("the list", names)
    choose(0)
    until("the conversation", answers)
    return first, browser.current_window_handle


def replies_in_two_windows_at_once():
    click("New")
    ask(QUESTION)
    answered()
    run(HOLD)
    interrupt()
    first, second = another_window()
    until("a sign of the first window", lambda: odd() == "Another window is receiving this reply.")
    ask("One more")
    until("the notice", lambda: notice().startswith("Another window is receiving the last reply."))
    assert len(said()) == 2 and find("#text")[0].get_attribute("value") == "One more"
    find("#text")[0].clear()
    click("Edit")
    find(".edit textarea")[0].clear()
    find(".edit textarea")[0].send_keys("What is one plus one?" + Keys.ENTER)
    until("the reply", lambda: idle() and odd() == "" and find(".figures"))
    in_second = said(), answers()
    browser.switch_to.window(first)
    assert not idle()
    run("window.held = false")
    until("the reply", lambda: idle() and odd() == "" and len(find(".figures")) == 2)
    in_first = said(), answers()
    assert in_first[0] == [QUESTION, "Tell me a story about an owl."], in_first
    rename("Owls")
    browser.switch_to.window(second)
    until("the other window's name", lambda: names()[0] == "Owls")
    assert (said(), answers()) == in_second, "it stays at its own version"
    while said() != in_first[0]:
        click("Previous version")
    assert (said(), answers()) == in_first
    browser.refresh()
    until("the reply", lambda: (said(), answers()) == in_first and names()[0] == "Owls")
    browser.close()
    browser.switch_to.window(first)


def deletes_in_all_windows():
    for edits in [False, True]:
        click("New")
        ask(QUESTION)
        answered()
        if edits:
            click("Edit")
        else:
            run(HOLD)
            interrupt()
        before = names()
        first, second = another_window()
        delete()
        browser.switch_to.window(first)
        until("an empty conversation", lambda: idle() and not find(".message"))
        assert notice() == "Another window has deleted this conversation."
        assert names() == before[1:], names()
        run("window.held = false")
        ask(QUESTION)
        answered()
        delete()
        browser.switch_to.window(second)
        browser.refresh()
        until("the list", lambda: names() == before[1:])
        browser.close()
        browser.switch_to.window(first)


def keeps_the_focus():
    focused = "const one = document.activeElement; return one.ariaLabel || one.textContent"

    def press(name, then):
        run("arguments[0].focus()", button(name, ".message:last-child"))
        browser.switch_to.active_element.send_keys(Keys.ENTER)
        until(name, idle)
        assert run(focused) == then, (name, run(focused))

    click("New")
    ask(QUESTION)
    answered()
    press("Regenerate", "Reply")
    press("Previous version", "Previous version")
    press("Previous version", "Previous version")
    press("Next version", "Next version")
    run("arguments[0].focus()", button("Edit"))
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert run(focused) == "Edit", run(focused)
    find("#text")[0].send_keys("Tell me a story about an owl." + Keys.TAB + Keys.ENTER)
    until("the stop button", lambda: run(focused) == "Stop")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    until("the send button", lambda: idle() and run(focused) == "Send")
    press("Retry", "Reply")
    run("arguments[0].focus()", button("Rename"))
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    browser.switch_to.active_element.send_keys("Focus" + Keys.ENTER)
    assert run(focused) == "Rename", run(focused)
    delete()
    choose(0)


def draws_markdown_and_no_markup():
    source = "A **bold** <img src=x onerror=alert(1)> [l](https://a.example) [x](javascript:alert(1))\n\n" \
        "| a | b |\n|:-:|--:|\n| 1 | 2 |\n\n- [x] done"
    shown = run(
        "const box = document.createElement('div'); box.append(...markdown(arguments[0]));"
        "return [box.innerHTML, box.querySelectorAll('img, script').length, box.querySelectorAll('a').length,"
        "box.querySelector('td').style.textAlign];", source)
    assert shown[1:] == [0, 1, "center"] and "<strong>bold</strong> &lt;img" in shown[0], shown


def shows_failures_and_asks_again():
    refused = json.dumps(json.dumps({"error": {"message": "Loading model"}}))
    for reply, reason in [(f"new Response({refused}, {{ status: 503 }})", "Loading model"),
                          ("Promise.reject(new TypeError('failed'))", "The server does not respond. Is it running?"),
                          ("new Response(': alive\\n\\n')", "The connection ended before the reply did.")]:
        run("window.real ??= window.fetch; window.fetch = async () => " + reply)
        click("New")
        ask(QUESTION)
        until(reason, lambda: idle() and find(".odd") and odd() == reason)
        run("window.fetch = window.real;")
        click("Retry")
        answered()
        assert len(find(".message")) == 2 and not find(".actions")[-1].text.startswith("‹")


def asks_for_a_key():
    keyed = serving.Server("--temp", "0", "--api-key", "owl")
    with keyed:
        browser.get(keyed.url)
        until("the question", lambda: find("#ask-key")[0].is_displayed())
        find("[name=key]")[0].send_keys("owl" + Keys.ENTER)
        until("the model's name", lambda: "1024 tokens" in find("#model")[0].text)
        ask(QUESTION)
        answered()
        run("key = ''; window.both = Promise.all([call('v1/models'), call('v1/models')]);")
        until("the question", lambda: find("#ask-key")[0].is_displayed())
        find("[name=key]")[0].send_keys("owl" + Keys.ENTER)
        assert run("return window.both.then(all => all.map(one => one.status))") == [200, 200]
    browser.get_log("browser")  # with the refusals
    browser.get(server.url)


def fits_narrow_windows_and_dark_ones():
    ask(QUESTION)
    answered()
    wide = "word " * 40
    run("document.querySelector('.answer').append(...markdown(arguments[0]));",
        f"```\n{wide}\n```\n\n| {wide} | {'W' * 60} |\n|---|---|\n\n{'W' * 200} https://a.example/{'w' * 200}")
    light = run("return getComputedStyle(document.body).backgroundColor")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": False})
    scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    dark = run("return getComputedStyle(document.body).backgroundColor")
    assert dark != light, dark
    for part in ["html", "main"]:
        too_wide = run("const one = document.querySelector(arguments[0]); return one.scrollWidth - one.clientWidth", part)
        assert too_wide == 0, (part, too_wide)
    assert not find("#side")[0].is_displayed()
    click("Conversations")
    until("the list", lambda: find("#side")[0].is_displayed() and names())
    find("#close-side")[0].send_keys(Keys.ESCAPE)
    until("the page", lambda: not find("#side")[0].is_displayed())
    assert run("return document.activeElement.id") == "open-side"
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def leaves_a_reply_running():
    click("New")
    interrupt()
    click("New")
    assert not find(".message") and idle()
    ask(QUESTION)
    answered()
    until("the other reply", lambda: not [name for name in names() if name.startswith("… ")])
    choose([*names()].index("Tell me a story about an owl."))
    until("the story", lambda: len(answers()[-1]) > 40)
    if "PICTURE" in os.environ:
        browser.save_screenshot(os.environ["PICTURE"])


def breaks_no_rule():
    log = [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
    assert not log, log


with server:
    try:
        browser.get(server.url)
        serving.run([
            greets, folds_thinking_and_figures, examples_leave_the_draft, is_kept_by_a_reload,
            keeps_what_a_reload_interrupts, stops_and_asks_again, edits_a_message, breaks_lines_with_shift, copies,
            says_blocks_and_not_tokens, every_control_has_a_name, sends_settings, lists_conversations,
            exports_and_imports, imports_nothing_older, undoes_a_deletion, shares_conversations_between_windows,
            replies_in_two_windows_at_once, deletes_in_all_windows, keeps_the_focus, draws_markdown_and_no_markup,
            shows_failures_and_asks_again, breaks_no_rule, leaves_a_reply_running, asks_for_a_key,
            fits_narrow_windows_and_dark_ones, breaks_no_rule])
    finally:
        browser.quit()

"""Two servers behind HAProxy."""

import json
import pathlib
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

import serving
from serving import ANSWER, QUESTION

servers = [serving.Server(), serving.Server()]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % free.getsockname()[1]
text = (pathlib.Path(__file__).parent / "haproxy.cfg").read_text()
for name, value in [("PORT", address), ("ONE", servers[0].url[7:]), ("TWO", servers[1].url[7:])]:
    text = text.replace(name, value)
config = tempfile.NamedTemporaryFile("w", suffix=".cfg")
config.write(text)
config.flush()
proxy = subprocess.Popen(["haproxy", "-db", "-f", config.name], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def ask(headers=(), max_tokens=None):
    body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    if max_tokens:
        body["max_tokens"] = max_tokens
    request = urllib.request.Request(f"http://{address}/v1/chat/completions", json.dumps(body).encode(), dict(headers))
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer), answer.headers


def requests(server):
    with urllib.request.urlopen(server.url + "/metrics") as answer:
        return next(int(line.split()[1]) for line in answer.read().decode().split("\n")
                    if line.startswith("wglm_replies_total "))


def answers():
    for _ in range(100):
        try:
            reply, _ = ask()
            break
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    assert reply["choices"][0]["message"]["content"].strip() == ANSWER, reply


def keeps_a_conversation_by_its_cookie():
    cookie = ask(max_tokens=2)[1]["set-cookie"].split(";")[0]
    before = [requests(server) for server in servers]
    for _ in range(4):
        ask({"Cookie": cookie}, max_tokens=2)
    grown = sorted(requests(server) - was for server, was in zip(servers, before))
    assert grown == [0, 4], grown


def keeps_a_conversation_by_its_header():
    for name in ["a", "b", "c", "d"]:
        before = [requests(server) for server in servers]
        for _ in range(3):
            ask({"X-Conversation": name}, max_tokens=2)
        grown = sorted(requests(server) - was for server, was in zip(servers, before))
        assert grown == [0, 3], (name, grown)


def loses_nothing_but_what_ran():
    """A server is killed while requests run: those it had begun may fail, all that follow are answered."""
    failed, done, lock = [], [], threading.Lock()

    def one(number):
        for _ in range(4):
            try:
                reply, _ = ask(max_tokens=6)
                with lock:
                    done.append(reply["usage"]["completion_tokens"])
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                with lock:
                    failed.append(f"{number}: {error}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    while len(done) < 4:
        time.sleep(0.01)
    servers[0].kill()
    for thread in threads:
        thread.join()
    print(f"     {len(done)} answered, {len(failed)} lost with the server")
    assert len(failed) <= 8 and len(done) + len(failed) == 32, failed
    for _ in range(4):
        ask(max_tokens=2)


try:
    serving.run([answers, keeps_a_conversation_by_its_cookie, keeps_a_conversation_by_its_header,
                 loses_nothing_but_what_ran])
finally:
    proxy.kill()
    for server in servers:
        server.kill()

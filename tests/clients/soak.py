"""Good clients beside bad ones for a while: every good reply must be the one that the server gave when it was alone.

    soak.py [MINUTES]

It runs for MINUTES (20) on the demonstration model, by hand. Eight good clients ask greedy questions through every
interface. Beside them, bad clients leave in the middle, read slowly, send bodies that are broken, large or wrong, and
ask for schemas and expressions that explode. It prints how many replies were compared and what memory the server took,
and fails if a good reply differs, if a good request gets anything but 200, 429 or 503, if the server does not answer
afterwards, or if it takes more than ALLOWED MiB more at the end than after its first minute.
"""

import http.client
import json
import random
import socket
import sys
import threading
import time

import serving

MINUTES = float(sys.argv[1]) if len(sys.argv) > 1 else 20
ALLOWED = 128
server = serving.Server("--parallel", "4")
host, port = server.url.removeprefix("http://").split(":")
until = 0.0

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
    "a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}


def user(text):
    return [{"role": "user", "content": text}]


def good_requests():
    """Requests whose replies do not depend on chance."""
    for number, animal in enumerate(["owl", "fox", "hen", "bear"]):
        story = user(f"Tell me a story about {number} and a {animal}.")
        yield "/v1/chat/completions", {"messages": story, "temperature": 0, "max_tokens": 24}
        yield "/v1/chat/completions", {"messages": story, "temperature": 0, "max_tokens": 24, "stream": True}
        yield "/v1/completions", {"prompt": f"Once a {animal}", "temperature": 0, "max_tokens": 24}
        yield "/v1/responses", {"input": f"Who is the {animal}?", "temperature": 0, "max_output_tokens": 24}
        yield "/v1/messages", {"messages": story, "temperature": 0, "max_tokens": 24}
    yield "/v1/chat/completions", {"messages": user("Who?"), "temperature": 0, "max_tokens": 60, "json_schema": SCHEMA}
    yield "/v1/chat/completions", {"messages": user("2 + 3?"), "temperature": 0, "max_tokens": 60, "tools": [TOOL],
                                   "tool_choice": "required"}
    yield "/v1/chat/completions", {"messages": user("Sing."), "temperature": 0, "max_tokens": 12, "n": 3}


def post(path, body, timeout=600):
    connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
    try:
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request("POST", path, data, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def words(path, stream, answer):
    """What a reply says, without ids, times and counts."""
    if stream:
        said = ""
        for line in answer.decode().splitlines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:]).get("choices", []):
                    said += (choice["delta"].get("reasoning_content") or "") + (choice["delta"].get("content") or "")
        return said
    answer = json.loads(answer)
    if path == "/v1/responses":
        return [[part.get("text") for part in item.get("content") or item.get("summary") or []]
                for item in answer["output"]]
    if path == "/v1/messages":
        return [{key: value for key, value in part.items() if key in ("type", "text", "thinking")}
                for part in answer["content"]]
    said = []
    for choice in answer["choices"]:
        message = choice.get("message", {})
        calls = [call["function"] for call in message.get("tool_calls") or []]
        said.append([choice.get("text"), message.get("content"), message.get("reasoning_content"), calls])
    return said


GOOD = list(good_requests())


def good_client(number, alone, counts, wrong):
    chance = random.Random(number)
    while time.time() < until:
        index = chance.randrange(len(GOOD))
        path, body = GOOD[index]
        try:
            status, answer = post(path, body)
        except OSError as error:
            wrong.append(f"{path}: {error!r}")
            continue
        if status in (429, 503):
            counts["later"] += 1
            time.sleep(1)
        elif status != 200:
            wrong.append(f"{path}: {status}: {answer[:200]}")
        elif words(path, body.get("stream"), answer) != alone[index]:
            wrong.append(f"{path}: {words(path, body.get('stream'), answer)} in place of {alone[index]}")
        else:
            counts["same"] += 1


def bombs():
    """Bodies that ask for too much."""
    ask = {"messages": user("Hi."), "max_tokens": 4}
    many = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(7000)}}
    counted = {"allOf": [{"type": "string", "pattern": f".*{chr(97 + number)}.{{15}}"} for number in range(20)]}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": counted}}}}
    yield "/v1/chat/completions", {**ask, "json_schema": many}
    yield "/v1/chat/completions", {**ask, "json_schema": counted}
    yield "/v1/chat/completions", {**ask, "tools": [tool], "tool_choice": "required"}
    yield "/v1/chat/completions", {**ask, "n": 8, "chat_template_kwargs": {"x": ["y"] * 200_000}}
    yield "/v1/chat/completions", {**ask, "n": 8, "messages": user("word " * 1_000_000)}
    yield "/v1/completions", {"prompt": "word " * 1_000_000, "n": 8}
    yield "/tokenize", {"content": "word " * 1_000_000, "with_pieces": True}
    yield "/v1/chat/completions", b"[" * 1_000_000
    yield "/v1/messages", b'{"messages": [' + b"[]," * 500_000 + b"[]]}"
    yield "/v1/responses", b"\x00" * 1000


BOMBS = list(bombs())


def bad_client(number, counts, wrong):
    chance = random.Random(1000 + number)
    while time.time() < until:
        try:
            kind = chance.randrange(4)
            if kind == 0:  # one that explodes
                status, answer = post(*chance.choice(BOMBS))
                if status >= 500 and status != 503:
                    wrong.append(f"a bad request: {status}: {answer[:200]}")
            elif kind == 1:  # one that leaves
                body = json.dumps({"messages": user("Count to a thousand."), "stream": True, "max_tokens": 200}).encode()
                with socket.create_connection((host, int(port)), timeout=60) as leaving:
                    leaving.sendall(head("/v1/chat/completions", len(body)) + body)
                    leaving.recv(chance.randrange(1, 2000))
            elif kind == 2:  # half of a body
                with socket.create_connection((host, int(port)), timeout=60) as half:
                    half.sendall(head("/v1/chat/completions", 5000) + b'{"messages": [')
                    time.sleep(chance.random())
            else:  # one that reads slowly for a while
                body = json.dumps({"prompt": "Once", "stream": True, "max_tokens": 200, "logprobs": 5}).encode()
                with socket.socket() as slow:
                    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                    slow.settimeout(60)
                    slow.connect((host, int(port)))
                    slow.sendall(head("/v1/completions", len(body)) + body)
                    for _ in range(10):
                        slow.recv(64)
                        time.sleep(0.5)
            counts["bad"] += 1
        except OSError:
            counts["bad"] += 1  # the server may close such a connection at any time


def head(path, length):
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n".encode()


def memory():
    with open(f"/proc/{server.process.pid}/status") as status:
        kilobytes = {line.split(":")[0]: line.split()[1] for line in status if line.startswith(("VmRSS", "VmHWM"))}
    return int(kilobytes["VmRSS"]) // 1024, int(kilobytes["VmHWM"]) // 1024


def soak():
    global until
    alone = []
    for path, body in GOOD:
        status, answer = post(path, body)
        assert status == 200, (path, status, answer[:300])
        alone.append(words(path, body.get("stream"), answer))
    counts, wrong = {"same": 0, "later": 0, "bad": 0}, []
    resting, start = memory()[0], time.time()
    until = start + MINUTES * 60
    threads = [threading.Thread(target=good_client, args=(number, alone, counts, wrong)) for number in range(8)]
    threads += [threading.Thread(target=bad_client, args=(number, counts, wrong)) for number in range(4)]
    for thread in threads:
        thread.start()
    settled = None
    while any(thread.is_alive() for thread in threads):
        time.sleep(1)
        if settled is None and time.time() - start > min(60, MINUTES * 15):
            settled = memory()[0]
    time.sleep(5)
    now, peak = memory()
    print(f"{counts['same']} replies as alone, {counts['later']} told to come later, {counts['bad']} bad requests; "
          f"memory {resting} MiB at rest, {settled} after the first minute, {peak} at most, {now} at the end", flush=True)
    assert not wrong, f"{len(wrong)} wrong, the first: {wrong[:3]}"
    assert counts["same"] > 0
    assert now - (settled or resting) < ALLOWED, "memory grew"
    assert post(*GOOD[0])[0] == 200


with server:
    serving.run([soak])

"""A client that reads its reply more slowly than that is generated, over a connection that holds little."""

import json
import socket
import time
import urllib.error
import urllib.request

import serving
from serving import QUESTION

TIMEOUT = 2
END = 10  # what a reply has left to end when its time is over
server = serving.Server("--parallel", "1", "--timeout", str(TIMEOUT))


def ask():
    body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 1}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def leaves_its_slot_in_time():
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": -1, "stream": True, "logprobs": 20}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        host, port = server.url.removeprefix("http://").split(":")
        slow.connect((host, int(port)))
        slow.sendall(head + body)
        start = time.time()
        while time.time() - start < TIMEOUT + END + 3:
            try:
                piece = slow.recv(256)
            except ConnectionError:
                break
            if not piece:
                break
            time.sleep(0.05)
        # The slot is free for others, although this client has taken something all the time.
        try:
            assert ask() == 1
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"the slot is still taken: {refused.read()}")


with server:
    serving.run([leaves_its_slot_in_time])

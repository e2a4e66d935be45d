"""One client that takes what it can, beside another one that only asks.

The attacks come from 127.0.0.2 and the good client from 127.0.0.1, each with a bound: 600 connections that trickle their
heads, nine requests for eight replies, and four readers of two bytes a second. What the good client waited is printed;
the bounds are wide, because the model runs on a processor here.
"""

import json
import socket
import threading
import time
import urllib.error
import urllib.request

import serving
from serving import QUESTION

ATTACKER = "127.0.0.2"
WAIT = 60  # s, the most that the good client may wait for an answer of one token
HEADS = 10  # s, the time of a head: without shares the good client waits for connections to be given up


def connect(server, receive_buffer=None):
    host, port = server.url.removeprefix("http://").split(":")
    attacker = socket.socket()
    if receive_buffer:
        attacker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    attacker.bind((ATTACKER, 0))
    attacker.settimeout(WAIT)
    attacker.connect((host, int(port)))
    return attacker


def send(server, body, **options):
    attacker = connect(server, **options)
    text = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" \
        f"content-length: {len(text)}\r\n\r\n"
    attacker.sendall(head.encode() + text)
    return attacker


def chat(**fields):
    return {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, **fields}


def ask(server):
    """How long the good client waits."""
    start = time.time()
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(chat(max_tokens=1)).encode())
    with urllib.request.urlopen(request, timeout=WAIT) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == 1
    return time.time() - start


def status(attacker):
    try:
        line = attacker.recv(64)
    except (ConnectionError, TimeoutError):
        return 0
    return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0


def slow_heads_leave_connections_to_others():
    with serving.Server() as server:
        attackers, refused = [], 0
        for _ in range(600):
            attacker = connect(server)
            try:
                attacker.sendall(b"GET /health HTTP/1.1\r\nhost: loc")
            except ConnectionError:
                pass  # refused before it could say anything
            attackers.append(attacker)
        waited = ask(server)
        for attacker in attackers:
            attacker.setblocking(False)
            try:
                refused += attacker.recv(12) in (b"", b"HTTP/1.1 429")
            except ConnectionError:
                refused += 1
            except BlockingIOError:
                pass
        print(f"     the good client waited {waited:.2f} s; {refused} of 600 connections were refused")
        assert refused >= 300 and waited < HEADS, (refused, waited)
        for attacker in attackers:
            attacker.close()


def many_replies_leave_places_to_others():
    with serving.Server() as server:
        attackers = [send(server, chat(n=8, max_tokens=40)) for _ in range(9)]
        time.sleep(1)
        waits = []
        threads = [threading.Thread(target=lambda: waits.append(ask(server))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(waits) == 3, "not all of the good client's requests were answered"
        print(f"     the good client waited {max(waits):.2f} s at most")
        for attacker in attackers:
            attacker.close()


def slow_readers_leave_slots_to_others():
    with serving.Server() as server:
        body = chat(stream=True, max_tokens=300, logprobs=True, top_logprobs=20)
        attackers = [send(server, body, receive_buffer=2048) for _ in range(4)]
        assert all(attacker.recv(2) == b"HT" for attacker in attackers)
        waits = []
        for _ in range(3):
            waits.append(ask(server))
            for attacker in attackers:
                attacker.recv(2)
        print(f"     the good client waited {max(waits):.2f} s at most")
        for attacker in attackers:
            while piece := attacker.recv(1 << 16):
                last = piece
            assert last.endswith(b"0\r\n\r\n"), "what was not read is gone"
            attacker.close()


def a_full_queue_is_shared():
    with serving.Server("--parallel", "1", "--queue", "4") as server:
        attackers = [send(server, chat(max_tokens=200)) for _ in range(5)]
        time.sleep(0.2)  # before the first of them ends
        late = send(server, chat(max_tokens=1))
        assert status(late) == 429, "a request beyond the queue"
        waited = ask(server)
        print(f"     the good client waited {waited:.2f} s")
        for attacker in attackers:
            attacker.close()


serving.run([slow_heads_leave_connections_to_others, many_replies_leave_places_to_others,
             slow_readers_leave_slots_to_others, a_full_queue_is_shared])

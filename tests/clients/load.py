"""Many conversations at once at a server with OpenAI's interface, for figures.

    load.py http://127.0.0.1:8080 1,4,8,16 [SECONDS]

Each client is a process of its own, because one cannot read the streams of many. It asks one question after another,
of different lengths, for SECONDS (20) seconds. Of each number of clients it prints how many tokens came in a second from
all together, and the time to the first token: its median and its 95th percentile.
"""

import json
import multiprocessing
import random
import statistics
import sys
import time
import urllib.request

url, counts = sys.argv[1], [int(count) for count in sys.argv[2].split(",")]
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 20
ANIMALS = ["owl", "fox", "hen", "bear", "crow", "hare", "wolf", "mouse"]


def client(number, until, results):
    tokens, firsts, failed = [], [], []
    chance = random.Random(number)
    while time.time() < until:
        text = f"Tell me a story about {number} and a {chance.choice(ANIMALS)}. " + "It is late. " * chance.randrange(30)
        body = {"messages": [{"role": "user", "content": text}], "stream": True, "max_tokens": 128, "model": "any",
                "stream_options": {"include_usage": True}}
        request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        begun, first = time.time(), None
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                for line in answer:
                    if not line.startswith(b"data: {"):
                        continue
                    event = json.loads(line[6:])
                    delta = event["choices"][0]["delta"] if event.get("choices") else {}
                    if first is None and (delta.get("content") or delta.get("reasoning_content")):
                        first = time.time() - begun
                        firsts.append(first)
                    if event.get("usage"):
                        tokens.append(event["usage"]["completion_tokens"])
        except OSError as error:
            failed.append(str(error))
    results.put((tokens, firsts, failed))


print("| clients | tokens/s | first token, median ms | 95 % ms | replies | failed |\n|--:|--:|--:|--:|--:|--:|")
for count in counts:
    results, start = multiprocessing.Queue(), time.time()
    clients = [multiprocessing.Process(target=client, args=(number, start + seconds, results)) for number in range(count)]
    for process in clients:
        process.start()
    tokens, firsts, failed = ([item for part in parts for item in part] for parts in zip(*(results.get() for _ in clients)))
    for process in clients:
        process.join()
    took = time.time() - start
    median = statistics.median(firsts) * 1e3 if firsts else 0
    late = sorted(firsts)[int(len(firsts) * 0.95)] * 1e3 if firsts else 0
    print(f"| {count} | {sum(tokens) / took:.1f} | {median:.0f} | {late:.0f} | {len(tokens)} | {len(failed)} |", flush=True)

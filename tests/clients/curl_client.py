"""curl, as the examples of docs/serving.md call it."""

import json
import subprocess

import serving
from serving import ANSWER, QUESTION

server = serving.Server()


def curl(path, body=None, *args):
    command = ["curl", "-sSN", *args, server.url + path]
    if body is not None:
        command += ["-d", "@-"]
    given = None if body is None else json.dumps(body)
    return subprocess.run(command, check=True, capture_output=True, text=True, input=given).stdout


ASKED = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}


def chat():
    reply = json.loads(curl("/v1/chat/completions", ASKED))
    assert reply["choices"][0]["message"]["content"].strip() == ANSWER, reply


def stream():
    lines = curl("/v1/chat/completions", {**ASKED, "stream": True}).strip().split("\n\n")
    assert lines[-1] == "data: [DONE]" and all(line.startswith("data: ") for line in lines), lines


def llama():
    assert json.loads(curl("/health")) == {"status": "ok"}
    assert json.loads(curl("/props"))["default_generation_settings"]["n_ctx"] == 1024
    assert "wglm_tokens_predicted_total" in curl("/metrics")
    tokens = json.loads(curl("/tokenize", {"content": QUESTION}))["tokens"]
    assert json.loads(curl("/detokenize", {"tokens": tokens}))["content"] == QUESTION


def embeddings():
    answer = json.loads(curl("/v1/embeddings", {"input": QUESTION}))
    assert len(answer["data"]) == 1 and len(answer["data"][0]["embedding"]) > 16, answer


def expect_continue():
    reply = curl("/tokenize", {"content": "owl " * 50_000}, "-H", "expect: 100-continue")
    assert len(json.loads(reply)["tokens"]) > 1000


def head():
    shown = subprocess.run(["curl", "-sSI", server.url], check=True, capture_output=True, text=True).stdout
    assert shown.startswith("HTTP/1.1 200") and "content-security-policy" in shown.lower(), shown


with server:
    serving.run([chat, stream, llama, embeddings, expect_continue, head])

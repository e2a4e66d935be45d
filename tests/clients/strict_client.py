"""What the server sends, read by the types of the packages `openai` and `anthropic` with every field that they require:
the packages themselves accept answers that lack some."""

import json
import urllib.request

import anthropic.types
import openai.types
import openai.types.chat
import openai.types.responses
import pydantic
import serving
from serving import QUESTION

server = serving.Server()
MESSAGES = [{"role": "user", "content": QUESTION}]
FUNCTION = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"]}
ANTHROPIC = {"anthropic-version": "2023-06-01"}
# The union of all stream events is a type, and no class.
EVENTS = {"openai": openai.types.responses.ResponseStreamEvent, "anthropic": anthropic.types.RawMessageStreamEvent}


def ask(path, body=None, **headers):
    """The answer's JSON, or the data of its events."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | headers
    with urllib.request.urlopen(urllib.request.Request(server.url + path, data, headers)) as answer:
        text = answer.read().decode()
    if body is None or not body.get("stream"):
        return json.loads(text)
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(event) for event in events if event != "[DONE]"]


def read(kind, value):
    """Every field that the type requires has to be there, and every value has to be one of its values."""
    pydantic.TypeAdapter(kind).validate_python(value, strict=True)


def models():
    listed = ask("/v1/models")
    for model in listed["data"]:
        read(openai.types.Model, model)
        read(openai.types.Model, ask("/v1/models/" + model["id"]))
    listed = ask("/v1/models", **ANTHROPIC)
    assert {"data", "first_id", "last_id", "has_more"} <= set(listed), listed
    info = pydantic.TypeAdapter(anthropic.types.ModelInfo)  # not strict, because JSON has no dates, only text
    for model in listed["data"]:
        info.validate_python(model)
        info.validate_python(ask("/v1/models/" + model["id"], **ANTHROPIC))


def chat():
    tool = {"type": "function", "function": {"name": "add", "parameters": FUNCTION}}
    for more in [{}, {"logprobs": True, "top_logprobs": 2}, {"tools": [tool], "tool_choice": "required"}, {"n": 2}]:
        asked = {"model": "any", "messages": MESSAGES, "max_tokens": 60, "temperature": 0} | more
        read(openai.types.chat.ChatCompletion, ask("/v1/chat/completions", asked))
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
        for chunk in ask("/v1/chat/completions", asked):
            read(openai.types.chat.ChatCompletionChunk, chunk)


def completions():
    for more in [{}, {"logprobs": 2}, {"echo": True}]:
        asked = {"model": "any", "prompt": "The owl", "max_tokens": 5} | more
        read(openai.types.Completion, ask("/v1/completions", asked))
        *chunks, last = ask("/v1/completions", asked | {"stream": True})
        read(openai.types.Completion, last)
        for chunk in chunks:
            choice, = chunk["choices"]
            assert choice["finish_reason"] is None, chunk  # as in OpenAI's streams; the type has no such value
            read(openai.types.Completion, chunk | {"choices": [choice | {"finish_reason": last["choices"][0]["finish_reason"]}]})


def embeddings():
    for form in ["float", "base64"]:
        answer = ask("/v1/embeddings", {"model": "any", "input": ["a", "b"], "encoding_format": form})
        if form == "float":  # the type has no name for base64, which the package decodes
            read(openai.types.CreateEmbeddingResponse, answer)
        assert [one["index"] for one in answer["data"]] == [0, 1], answer


def responses():
    tool = {"type": "function", "name": "add", "parameters": FUNCTION, "strict": True}
    for more in [{}, {"tools": [tool], "tool_choice": "required"}, {"reasoning": {"effort": "none"}}]:
        asked = {"model": "any", "input": QUESTION, "max_output_tokens": 60} | more
        read(openai.types.responses.Response, ask("/v1/responses", asked))
        for event in ask("/v1/responses", asked | {"stream": True}):
            read(EVENTS["openai"], event)
    whole = ask("/v1/responses", {"model": "any", "input": QUESTION, "max_output_tokens": 60})
    assert ask("/v1/responses/" + whole["id"]) == whole
    again = {"model": "any", "input": QUESTION, "previous_response_id": whole["id"], "max_output_tokens": 5}
    read(openai.types.responses.Response, ask("/v1/responses", again))
    counted = ask("/v1/responses/input_tokens", {"model": "any", "input": QUESTION})
    read(openai.types.responses.InputTokenCountResponse, counted)


def messages():
    tool = {"name": "add", "input_schema": FUNCTION}
    for more in [{}, {"tools": [tool], "tool_choice": {"type": "any"}}, {"thinking": {"type": "disabled"}},
                 {"stop_sequences": ["plus"]}]:
        asked = {"model": "any", "messages": MESSAGES, "max_tokens": 60} | more
        read(anthropic.types.Message, ask("/v1/messages", asked, **ANTHROPIC))
        for event in ask("/v1/messages", asked | {"stream": True}, **ANTHROPIC):
            if event["type"] != "ping":
                read(EVENTS["anthropic"], event)
    counted = ask("/v1/messages/count_tokens", {"model": "any", "messages": MESSAGES}, **ANTHROPIC)
    read(anthropic.types.MessageTokensCount, counted)


with server:
    serving.run([models, chat, completions, embeddings, responses, messages])

"""Anthropic's client."""

import anthropic
import serving
from serving import ANSWER, QUESTION

server = serving.Server("--api-key", "secret")
client = anthropic.Anthropic(base_url=server.url, api_key="secret", max_retries=0)
# The package has no parameter for the temperature any more.
ASKED = dict(model="any", max_tokens=200, extra_body={"temperature": 0}, messages=[{"role": "user", "content": QUESTION}])
THINKING = {"type": "enabled", "budget_tokens": 1024}


def message():
    reply = client.messages.create(**ASKED)
    assert reply.content[0].text.strip() and reply.stop_reason == "end_turn", reply


def thinking():
    reply = client.messages.create(**ASKED, thinking=THINKING)
    assert [block.type for block in reply.content] == ["thinking", "text"], reply
    assert reply.content[1].text.strip() == ANSWER


def stream():
    with client.messages.stream(**ASKED, thinking=THINKING) as events:
        text = "".join(events.text_stream)
        whole = events.get_final_message()
    assert text.strip() == ANSWER and whole.usage.output_tokens > 5, whole
    assert whole.content[0].type == "thinking" and whole.stop_reason == "end_turn", whole


def count():
    told = client.messages.count_tokens(model="any", messages=ASKED["messages"])
    usage = client.messages.create(**ASKED).usage
    assert told.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, (told, usage)


def tool_result():
    messages = ASKED["messages"] + [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "add", "input": {"a": 7, "b": 5}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "12"}]}]
    tools = [{"name": "add", "description": "Adds", "input_schema": {"type": "object", "properties": {}}}]
    reply = client.messages.create(**{**ASKED, "messages": messages}, tools=tools)
    assert reply.usage.output_tokens > 0


def errors():
    for wrong, error in [
        (dict(max_tokens=-3), anthropic.BadRequestError),
        (dict(messages=[{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}]),
         anthropic.BadRequestError),
        (dict(messages=[{"role": "user", "content": "owl " * 3000}]), anthropic.BadRequestError),
    ]:
        try:
            client.messages.create(**{**ASKED, **wrong})
        except error as told:
            assert told.body["error"]["type"] == "invalid_request_error", told
        else:
            raise AssertionError(f"{wrong} was answered")
    try:
        anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0).messages.create(**ASKED)
    except anthropic.AuthenticationError:
        pass
    else:
        raise AssertionError("a wrong key was accepted")


with server:
    serving.run([message, thinking, stream, count, tool_result, errors])

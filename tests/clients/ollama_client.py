"""Ollama's client, which reads and checks what the server says by its own types."""

import ollama
import pydantic
import serving
from serving import ANSWER, QUESTION

server = serving.Server("--parallel", "4")
client = ollama.Client(host=server.url)
MESSAGES = [{"role": "user", "content": QUESTION}]
OPTIONS = {"temperature": 0}
ASKED = dict(model="any", messages=MESSAGES, options=OPTIONS)


def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: one number
        b: the other number
    """
    return a + b


def refused(call, status):
    try:
        result = call()
        result = result if isinstance(result, pydantic.BaseModel) else list(result)
    except ollama.ResponseError as error:
        assert error.status_code == status and error.error, error
        return error.error
    raise AssertionError(f"not refused: {result}")


def chat():
    reply = client.chat(**ASKED)
    assert reply.message.content.strip() == ANSWER and reply.message.thinking.strip(), reply
    assert reply.done and reply.done_reason == "stop" and reply.created_at, reply
    assert reply.eval_count > 5 and reply.prompt_eval_count > 5, reply
    assert reply.total_duration >= reply.eval_duration > 0 and reply.prompt_eval_duration > 0, reply


def chat_stream():
    parts = list(client.chat(**ASKED, stream=True))
    assert "".join(part.message.content or "" for part in parts).strip() == ANSWER, parts
    assert "".join(part.message.thinking or "" for part in parts).strip(), parts
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True] and len(parts) > 5, parts
    assert parts[-1].done_reason == "stop" and parts[-1].eval_count > 5, parts[-1]


def chat_think():
    assert not client.chat(**ASKED, think=False).message.thinking
    assert client.chat(**ASKED, think="low").message.thinking


def chat_options():
    reply = client.chat(**{**ASKED, "options": ollama.Options(temperature=0, num_predict=3, num_ctx=512, seed=1,
                                                              stop=["never said"], repeat_penalty=1.1, top_k=40)})
    assert reply.done_reason == "length" and reply.eval_count == 3, reply


def chat_load():
    for reply in [client.chat(model="any"), *client.chat(model="any", stream=True, keep_alive="5m")]:
        assert reply.done and reply.done_reason == "load" and not reply.message.content, reply


def chat_tools():
    # This model calls nothing on its own, so the call in the history is made up.
    reply = client.chat(**{**ASKED, "options": {"num_predict": 10}}, tools=[add])
    assert reply.eval_count == 10 and not reply.message.tool_calls, reply
    call = ollama.Message.ToolCall(function=ollama.Message.ToolCall.Function(name="add", arguments={"a": 7, "b": 5}))
    history = [*MESSAGES, ollama.Message(role="assistant", thinking="add them", tool_calls=[call]),
               {"role": "tool", "tool_name": "add", "content": str(add(**call.function.arguments))}]
    reply = client.chat(model="any", messages=history, tools=[add], options={"num_predict": 10})
    assert reply.eval_count > 0, reply


class Animal(pydantic.BaseModel, extra="forbid"):
    # Without bounds this model writes letters, digits and further fields for ever.
    name: str = pydantic.Field(max_length=12)
    legs: int = pydantic.Field(ge=0, le=8)


def chat_format():
    asked = {**ASKED, "options": {**OPTIONS, "num_predict": 200}}
    for stream in [False, True]:
        reply = client.chat(**asked, format=Animal.model_json_schema(), stream=stream)
        text = "".join(part.message.content for part in reply) if stream else reply.message.content
        Animal.model_validate_json(text)
    assert client.chat(**asked, format="json").message.content.startswith("{")


def generate():
    asked = dict(model="any", prompt=QUESTION, options=OPTIONS)
    reply = client.generate(**asked)
    assert reply.response.strip() == ANSWER and reply.thinking.strip() and reply.done_reason == "stop", reply
    parts = list(client.generate(**asked, stream=True))
    assert "".join(part.response for part in parts).strip() == ANSWER and parts[-1].eval_count > 5, parts
    shape = client.generate(**{**asked, "options": {"num_predict": 200}}, format=Animal.model_json_schema())
    Animal.model_validate_json(shape.response)
    raw = client.generate(model="any", prompt="Once upon a time", raw=True, options={"num_predict": 8})
    assert raw.response and not raw.thinking and raw.eval_count == 8, raw
    assert client.generate(model="any").done_reason == "load"


def embed():
    texts = ["An owl sat on a branch.", "Seven plus five is twelve."]
    reply = client.embed(model="any", input=texts)
    owl, other = reply.embeddings
    assert abs(sum(value * value for value in owl) - 1) < 1e-5 and len(owl) == len(other), reply
    assert reply.prompt_eval_count > 10 and reply.total_duration > 0, reply
    older = client.embeddings(model="any", prompt=texts[0]).embedding
    length = sum(value * value for value in older) ** 0.5
    assert max(abs(a / length - b) for a, b in zip(older, owl, strict=True)) < 1e-5, older
    assert client.embed(model="any", input="owl " * 2000).prompt_eval_count == 1024


def models():
    (model,) = client.list().models
    assert model.size > 0 and model.digest and model.modified_at and model.details.format == "gguf", model
    shown = client.show(model.model)
    assert shown.template and shown.details == model.details, shown
    assert {"completion", "tools", "thinking"} <= set(shown.capabilities), shown.capabilities
    architecture = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{architecture}.context_length"] >= 1024 and "num_ctx" in shown.parameters, shown
    (running,) = client.ps().models
    assert running.model == model.model and running.context_length == 1024 and running.expires_at.year > 2900, running
    assert running.size_vram > 0, running


def errors():
    assert "temperature" in refused(lambda: client.chat(**{**ASKED, "options": {"temperature": -1}}), 400)
    assert "temperature" in refused(lambda: client.chat(**{**ASKED, "options": {"temperature": -1}}, stream=True), 400)
    picture = {"role": "user", "content": "What is it?", "images": [b"picture"]}
    assert "text only" in refused(lambda: client.chat(model="any", messages=[picture]), 400)
    assert "fill-in-the-middle" in refused(lambda: client.generate(model="any", prompt="a", suffix="b"), 400)
    assert "text 1" in refused(lambda: client.embed(model="any", input=["x", ""]), 400)
    assert "too long" in refused(lambda: client.embed(model="any", input="owl " * 2000, truncate=False), 400)
    for change in [lambda: client.pull("owl"), lambda: client.pull("owl", stream=True), lambda: client.push("owl"),
                   lambda: client.create("owl", from_="any"), lambda: client.copy("owl", "hen"),
                   lambda: client.delete("owl")]:
        assert "`wglm pull`" in refused(change, 400)


def stopping():
    stream = client.chat(model="any", messages=[{"role": "user", "content": "Tell me a story."}], stream=True)
    next(iter(stream))
    stream.close()
    assert client.chat(**ASKED).done_reason == "stop"


with server:
    serving.run([chat, chat_stream, chat_think, chat_options, chat_load, chat_tools, chat_format, generate, embed,
                 models, errors, stopping])

"""OpenAI's client, which reads and checks what the server says by its own types."""

import json

import openai
import pydantic
import serving
from serving import ANSWER, QUESTION

server = serving.Server("--parallel", "4")
client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
ASKED = dict(model="any", messages=[{"role": "user", "content": QUESTION}], temperature=0)


def models():
    model = next(iter(client.models.list()))
    assert client.models.retrieve(model.id).id == model.id


def chat():
    reply = client.chat.completions.create(**ASKED)
    choice = reply.choices[0]
    assert choice.message.content.strip() == ANSWER, choice
    assert choice.message.reasoning_content.strip(), choice
    assert choice.finish_reason == "stop" and reply.usage.completion_tokens > 5, reply
    again = client.chat.completions.create(**ASKED)
    assert again.usage.prompt_tokens_details.cached_tokens > 5, again.usage


def chat_stream():
    chunks = list(client.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.strip() == ANSWER, text
    assert chunks[-1].usage.total_tokens > 10 and not chunks[-1].choices, chunks[-1]
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"


def chat_stream_helper():
    with client.chat.completions.stream(**ASKED) as stream:
        kinds = {event.type for event in stream}
        whole = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
    assert whole.choices[0].message.content.strip() == ANSWER


def chat_choices_and_logprobs():
    reply = client.chat.completions.create(**{**ASKED, "temperature": 1}, n=3, seed=5, logprobs=True, top_logprobs=3,
                                           max_completion_tokens=40)
    assert len(reply.choices) == 3
    said = [choice.logprobs.content for choice in reply.choices]
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 3 for tokens in said for token in tokens)


def chat_tool_result():
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 7, "b": 5}'}}
    messages = ASKED["messages"] + [{"role": "assistant", "content": None, "tool_calls": [call]},
                                    {"role": "tool", "tool_call_id": "c", "content": "12"}]
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    reply = client.chat.completions.create(model="any", messages=messages, tools=[tool], max_tokens=10)
    assert reply.usage.completion_tokens > 0


class Animal(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    legs: int = pydantic.Field(ge=0, le=8)  # without bounds this model writes digits for ever


def chat_parse():
    reply = client.chat.completions.parse(**ASKED, response_format=Animal, max_tokens=200)
    assert isinstance(reply.choices[0].message.parsed, Animal), reply


def chat_required_call():
    tool = {"type": "function", "function": {"name": "add", "strict": True, "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"], "additionalProperties": False}}}
    for stream in [False, True]:
        asked = dict(**ASKED, tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=200)
        if stream:
            with client.chat.completions.stream(**asked) as events:
                reply = events.get_final_completion()
        else:
            reply = client.chat.completions.create(**asked)
        call = reply.choices[0].message.tool_calls[0]
        assert call.function.name == "add" and isinstance(json.loads(call.function.arguments)["a"], int), reply
        assert reply.choices[0].finish_reason == "tool_calls", reply


def completions():
    reply = client.completions.create(model="any", prompt="Once upon a time", max_tokens=8, temperature=0, logprobs=2)
    assert "".join(reply.choices[0].logprobs.tokens) == reply.choices[0].text, reply
    chunks = client.completions.create(model="any", prompt="Once upon a time", max_tokens=8, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == reply.choices[0].text


def responses():
    reply = client.responses.create(model="any", input=QUESTION, temperature=0)
    assert reply.output_text.strip() == ANSWER and reply.status == "completed", reply
    assert [item.type for item in reply.output] == ["reasoning", "message"], reply.output
    assert reply.usage.output_tokens_details.reasoning_tokens > 0


def responses_stream():
    with client.responses.stream(model="any", input=QUESTION, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        whole = stream.get_final_response()
    assert text.strip() == ANSWER and whole.output_text == text, text


def embeddings():
    texts = ["An owl sat on a branch.", "An owl sat in a tree.", "Seven plus five is twelve."]
    packed = client.embeddings.create(model="any", input=texts)  # the package asks for base64
    plain = client.embeddings.create(model="any", input=texts, encoding_format="float")
    assert [one.index for one in packed.data] == [0, 1, 2] and packed.usage.prompt_tokens > 15, packed.usage
    owl, tree, sum_ = [one.embedding for one in packed.data]
    # The package makes floats of 32 bits into ones of 64 in both forms.
    near = lambda a, b: max(abs(x - y) for x, y in zip(a, b, strict=True)) < 1e-6
    assert all(near(one.embedding, other.embedding) for one, other in zip(packed.data, plain.data)), plain
    product = lambda a, b: sum(x * y for x, y in zip(a, b, strict=True))
    assert abs(product(owl, owl) - 1) < 1e-5 and product(owl, tree) > product(owl, sum_), (owl, tree, sum_)
    single = client.embeddings.create(model="any", input=texts[0], dimensions=len(owl))
    assert near(single.data[0].embedding, owl), single
    assert client.embeddings.create(model="any", input=[[1, 2, 3], [4]]).usage.total_tokens == 4


def errors():
    for wrong, error in [
        (dict(messages=[]), openai.BadRequestError),
        (dict(temperature=-1), openai.BadRequestError),
        (dict(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]),
         openai.BadRequestError),
    ]:
        try:
            client.chat.completions.create(**{**ASKED, **wrong})
        except error as told:
            assert told.body["message"], told
        else:
            raise AssertionError(f"{wrong} was answered")
    try:
        client.embeddings.create(model="any", input=["x", ""])
    except openai.BadRequestError as told:  # which the package does not try again
        assert told.param == "input", told
    else:
        raise AssertionError("an empty text was embedded")


def stopping():
    stream = client.chat.completions.create(**{**ASKED, "messages": [{"role": "user", "content": "Tell me a story."}]},
                                            stream=True)
    next(iter(stream))
    stream.close()
    assert client.chat.completions.create(**ASKED).choices[0].finish_reason == "stop"


with server:
    serving.run([models, chat, chat_stream, chat_stream_helper, chat_choices_and_logprobs, chat_tool_result, chat_parse,
                 chat_required_call, completions, embeddings,
                 responses, responses_stream, errors, stopping])

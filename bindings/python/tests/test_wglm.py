"""The Python package, with the demonstration model."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pydantic
import pytest
import wglm

STORY = "Tell me a story about an owl."
SUM = "What is seven plus five?"


@pytest.fixture(scope="session")
def model() -> wglm.Model:
    return wglm.Model.demo()


@pytest.fixture
def chat(model: wglm.Model) -> wglm.Chat:
    return wglm.Chat(model, thinking=False, temperature=0, max_tokens=16)


def test_a_reply_in_events_texts_and_as_a_whole(model: wglm.Model) -> None:
    chat = wglm.Chat(model, thinking=False, temperature=0)
    reply = chat.send(SUM)
    events = list(reply)
    assert isinstance(events[0], wglm.Prompt) and isinstance(events[-1], wglm.Done)
    text = "".join(event.text for event in events if isinstance(event, wglm.Text))
    assert "twelve" in text.lower() or "12" in text
    assert reply.text == text and reply.stats is not None
    assert reply.stats.stop == wglm.Stop.END and reply.stats.generated > 0 and reply.stats.computed > 0
    assert list(reply) == []
    assert [message.role for message in chat.messages] == ["user", "assistant"]
    assert chat.messages[1].content == text
    chat.truncate(0)
    assert "".join(chat.send(SUM).texts()) == text
    chat.truncate(0)
    assert chat.send(SUM).result() == text


@pytest.mark.parametrize(
    ("question", "answer"),
    [("What is 9 + 4?", "9 + 4 = 13."), ("What is the opposite of loud?", "The opposite of loud is quiet.")],
)
def test_the_answers_are_those_of_the_command(model: wglm.Model, question: str, answer: str) -> None:
    """models/README.md lists them."""
    assert wglm.Chat(model, thinking=False, temperature=0).send(question).result().strip() == answer


def test_matching_events(chat: wglm.Chat) -> None:
    pieces = []
    for event in chat.send(STORY):
        match event:
            case wglm.Text(text):
                pieces.append(text)
            case wglm.Done(stats):
                assert stats.stop == wglm.Stop.LENGTH and stats.generated == 16
    assert "".join(pieces) == chat.messages[-1].content


def test_a_reply_awaited(chat: wglm.Chat) -> None:
    expected = chat.send(STORY).result()

    async def tell() -> tuple[str, str]:
        chat.truncate(0)
        pieces = [piece async for piece in chat.send(STORY).texts_async()]
        chat.truncate(0)
        return "".join(pieces), await chat.send(STORY).result_async()

    assert asyncio.run(tell()) == (expected, expected)


def test_a_cancelled_task_ends_its_reply(model: wglm.Model) -> None:
    chat = wglm.Chat(model, thinking=False, temperature=0)

    async def tell(begun: asyncio.Event) -> None:
        async for event in chat.send(STORY):
            if isinstance(event, wglm.Text):
                begun.set()

    async def main() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(tell(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert chat.messages[-1].role == "assistant"

    asyncio.run(main())
    gc.collect()
    whole = wglm.Chat(model, thinking=False, temperature=0).send(STORY).result()
    partial = chat.messages[-1].content
    assert 0 < len(partial) < len(whole) and whole.startswith(partial)
    assert partial + chat.resume().result() == whole


def test_stopping_from_another_thread(model: wglm.Model) -> None:
    chat = wglm.Chat(model, thinking=False)
    reply = chat.send(STORY)
    for event in reply:
        if isinstance(event, wglm.Text):
            stopper = threading.Thread(target=reply.stop)
            stopper.start()
            stopper.join()
    assert reply.stats is not None and reply.stats.stop == wglm.Stop.CANCELLED


def test_leaving_a_block_ends_the_reply(model: wglm.Model) -> None:
    chat = wglm.Chat(model, thinking=False)
    with chat.send(STORY) as reply:
        for event in reply:
            if isinstance(event, wglm.Text):
                break
        with pytest.raises(wglm.Busy):
            chat.push("user", "not while a reply is being generated")
    assert chat.messages[-1].role == "assistant"
    assert list(reply) == []


@pytest.mark.parametrize("whole", [True, False], ids=["events", "texts"])
def test_an_interrupted_loop_ends_its_reply(whole: bool, model: wglm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = wglm.Chat(model, thinking=False, temperature=0)
    reply = chat.send(STORY)
    interrupt_once_a_piece_is_there(reply, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        for _ in reply if whole else reply.texts():
            pass
    assert chat.messages[-1].role == "assistant" and chat.messages[-1].content
    chat.push("user", SUM)  # not Busy


def interrupt_once_a_piece_is_there(reply: wglm.Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python raises KeyboardInterrupt in the call that returns, as here, once it no longer blocks."""
    core = reply._core
    assert core is not None
    wait, interrupts = core.wait_next, [KeyboardInterrupt]

    def wait_next() -> object:
        event = wait()
        if interrupts and isinstance(event, wglm._core.Event.TEXT):
            raise interrupts.pop()
        return event

    monkeypatch.setattr(core, "wait_next", wait_next)


def test_leaving_a_loop_over_texts_ends_the_reply(model: wglm.Model) -> None:
    chat = wglm.Chat(model, thinking=False, temperature=0)
    reply = chat.send(STORY)
    for _ in reply.texts():
        break
    assert chat.messages[-1].role == "assistant"

    async def tell() -> None:
        reply = chat.send(STORY)
        async for _ in reply.texts_async():
            break
        assert [message.role for message in chat.messages[-2:]] == ["user", "assistant"]
        assert await chat.send(SUM).result_async()

    asyncio.run(tell())


def test_a_task_cancelled_inside_a_loop_over_texts_ends_its_reply(model: wglm.Model) -> None:
    chat = wglm.Chat(model, thinking=False, temperature=0)

    async def tell(begun: asyncio.Event) -> None:
        reply = chat.send(STORY)
        async for _ in reply.texts_async():
            begun.set()
            await asyncio.Event().wait()

    async def main() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(tell(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await chat.send(SUM).result_async()

    asyncio.run(main())


def test_conversations_from_many_threads(model: wglm.Model) -> None:
    expected = wglm.Chat(model, thinking=False, temperature=0, max_tokens=8).send(STORY).result()
    told: list[str] = []

    def tell() -> None:
        told.append(wglm.Chat(model, thinking=False, temperature=0, max_tokens=8).send(STORY).result())

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [expected] * 4


def test_one_call_waits_at_a_time(chat: wglm.Chat) -> None:
    async def both() -> tuple[object, ...]:
        reply = chat.send(STORY)
        first, second = asyncio.create_task(reply.__anext__()), asyncio.create_task(reply.__anext__())
        return tuple(await asyncio.gather(first, second, return_exceptions=True))

    outcomes = asyncio.run(both())
    assert any(isinstance(outcome, wglm.Prompt) for outcome in outcomes)
    assert all(isinstance(outcome, (wglm.Prompt, wglm.Text, wglm.Busy)) for outcome in outcomes)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_dropped_in_any_order(order: tuple[int, int, int]) -> None:
    model = wglm.Model.demo()
    chat = wglm.Chat(model, thinking=False)
    reply = chat.send(STORY)
    next(reply)
    objects: list[object] = [model, chat, reply]
    del model, chat, reply
    for index in order:
        objects[index] = None
        gc.collect()


def test_a_value_of_a_pydantic_model(model: wglm.Model) -> None:
    class Sum(pydantic.BaseModel):
        sum: int = pydantic.Field(ge=0, le=99)

    chat = wglm.Chat(model, thinking=False, temperature=0)
    value = chat.ask(SUM, Sum)
    assert isinstance(value, Sum) and 0 <= value.sum <= 99
    assert json.loads(chat.messages[-1].content) == {"sum": value.sum}
    chat.truncate(0)
    assert asyncio.run(chat.ask_async(SUM, Sum)) == value
    chat.truncate(0)
    assert chat.ask(SUM, Sum.model_json_schema()) == {"sum": value.sum}


def test_an_unfinished_value_goes_on(model: wglm.Model) -> None:
    schema = {"type": "string", "minLength": 30, "maxLength": 40}
    chat = wglm.Chat(model, thinking=False, temperature=0, max_tokens=3)
    with pytest.raises(wglm.Unfinished) as raised:
        chat.ask(STORY, schema)
    assert raised.value.stop == wglm.Stop.LENGTH and raised.value.text.startswith('"')
    chat.set_options(temperature=0)
    rest = chat.resume().result()
    assert 30 <= len(json.loads(raised.value.text + rest)) <= 40
    chat.truncate(0)
    chat.set_options(temperature=0, max_tokens=3)
    for attempt in (lambda: chat.ask(STORY, schema), lambda: asyncio.run(chat.resume_ask_async(schema))):
        with pytest.raises(wglm.Unfinished):
            attempt()
    chat.set_options(temperature=0)
    assert chat.resume_ask(schema) == json.loads(raised.value.text + rest)


def test_constraints(model: wglm.Model) -> None:
    chat = wglm.Chat(model, thinking=False, constraint=wglm.Regex("[0-9]{4}-[0-9]{2}"))
    assert len(chat.send("When?").result()) == 7
    chat.set_options(constraint=wglm.JsonSchema({"enum": ["owl", "fox"]}))
    assert json.loads(chat.send("Who?").result()) in ["owl", "fox"]
    with pytest.raises(wglm.InvalidInput, match="type"):
        chat.set_options(constraint=wglm.JsonSchema({"type": "nothing"}))
    with pytest.raises(TypeError, match="temprature is not an option"):
        chat.set_options(temprature=0)  # type: ignore[call-arg]


def test_a_constraint_of_a_pydantic_model_allows_no_other_fields(model: wglm.Model) -> None:
    class Nothing(pydantic.BaseModel):
        pass

    class Sum(pydantic.BaseModel):
        nothing: Nothing

    chat = wglm.Chat(model, thinking=False, max_tokens=80, constraint=wglm.JsonSchema(Sum))
    assert json.loads(chat.send(SUM).result()) == {"nothing": {}}


def test_functions_are_run(model: wglm.Model) -> None:
    asked: list[str] = []
    chat: wglm.Chat

    def look(city: str) -> str:
        asked.append(city)
        chat.set_options(temperature=0, calls="none", max_tokens=8)
        return "rain"

    cities = {"type": "object", "properties": {"city": {"enum": ["Hamburg", "Rome"]}}, "required": ["city"]}
    weather = wglm.Function("weather", "The weather in a city", cities, look, strict=True)
    chat = wglm.Chat(model, functions=[weather], thinking=False, temperature=0, calls="weather", max_tokens=200)
    answer = chat.run("Do I need an umbrella?")
    assert len(asked) == 1 and answer, chat.messages
    assert [message.role for message in chat.messages] == ["user", "assistant", "tool", "assistant"]
    call = chat.messages[1].tool_calls[0]
    assert call.name == "weather" and json.loads(call.arguments) == {"city": asked[0]}
    assert chat.messages[2].tool_call_id == call.id and chat.messages[2].content == "rain"


def test_a_function_that_fails_is_reported_to_the_model(model: wglm.Model) -> None:
    chat: wglm.Chat

    def broken() -> str:
        """Fails."""
        chat.set_options(temperature=0, calls="none", max_tokens=4)
        raise RuntimeError("no connection")

    chat = wglm.Chat(model, functions=[broken], thinking=False, temperature=0, calls="broken")
    chat.run("Try it.")
    assert chat.messages[2].content == "error: no connection"


def test_a_function_without_code_is_reported_to_the_model(model: wglm.Model) -> None:
    described = wglm.Chat(model, functions=[wglm.Function("weather", "The weather")])
    chat = wglm.Chat(model)
    chat.restore(described.save())
    call = wglm.ToolCall("1", "weather", {})
    assert chat._called(call) == "error: there is no function named weather"


def test_what_a_function_of_python_becomes() -> None:
    @wglm.function
    def search(query: str, limit: int = 3, tags: list[str] = []) -> str:
        """Searches."""
        return query

    assert (search.name, search.description, search.strict) == ("search", "Searches.", True)
    assert search.parameters == {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, "tags": {"type": "array"}},
        "required": ["query"],
    }
    with pytest.raises(TypeError, match="city of wrong has the type"):

        @wglm.function
        def wrong(city: bytes) -> str:
            return ""


def test_log_probabilities(model: wglm.Model) -> None:
    chat = wglm.Chat(model, thinking=False, temperature=0, logprobs=2, max_tokens=3)
    tokens = [event.token for event in chat.send(STORY) if isinstance(event, wglm.Token)]
    assert len(tokens) == 3
    assert all(len(token.top) == 2 and token.chosen == token.top[0] and token.chosen.logprob <= 0 for token in tokens)


def test_messages(chat: wglm.Chat) -> None:
    chat.messages = [{"role": "system", "content": "Be brief."}, wglm.Message(role="user", content=SUM)]
    assert [message.content for message in chat.unanswered()] == [SUM]
    before = chat.prompt_tokens
    assert chat.reply().result()
    assert chat.prompt_tokens > before and chat.unanswered() == []
    assert [message.role for message in chat.remove(1, 2)] == ["user", "assistant"]
    assert len(chat.messages) == 1
    assert chat.context == 8192 or chat.context > 0


def test_a_conversation_that_outgrows_its_context(model: wglm.Model) -> None:
    chat = wglm.Chat(model, context=96, thinking=False, temperature=0, max_tokens=16)
    with pytest.raises(wglm.ContextFull):
        for _ in range(8):
            chat.send(STORY).result()
    chat.set_drop_oldest(True)
    events = list(chat.send(STORY))
    assert isinstance(events[0], wglm.Dropped) and events[0].messages
    assert chat.fit(40)


def test_a_conversation_is_saved_and_continued(chat: wglm.Chat, model: wglm.Model, tmp_path: Path) -> None:
    chat.send(STORY).result()
    saved = chat.save()
    chat.save_snapshot(tmp_path / "cache")
    following = chat.send("And one about a fox.").result()
    other = wglm.Chat(model)
    other.restore(saved)
    other.load_snapshot(tmp_path / "cache")
    reply = other.send("And one about a fox.")
    assert reply.result() == following
    assert reply.stats is not None and reply.stats.cached > 20
    (tmp_path / "cache").write_bytes(b"nothing")
    with pytest.raises(wglm.InvalidSnapshot):
        other.load_snapshot(tmp_path / "cache")
    with pytest.raises(wglm.InvalidInput, match="the conversation is not valid"):
        other.restore("nothing")


def test_embeddings(model: wglm.Model) -> None:
    owl, fox, single = *model.embed(["An owl in a tree.", "A fox."]), model.embed("An owl in a tree.")[0]
    assert len(owl) == len(fox) > 0 and owl != fox and owl == single
    assert asyncio.run(model.embed_async(["A fox."])) == [fox]
    with pytest.raises(wglm.InvalidInput):
        model.embed("")


def test_loading(tmp_path: Path) -> None:
    seen: list[wglm.LoadProgress] = []
    model = wglm.Model.demo(seen.append, context=256)
    assert {progress.stage for progress in seen} >= {wglm.LoadStage.WEIGHTS, wglm.LoadStage.KERNELS}
    assert model.context == 256 and model.adapter
    verdict = model.verdict
    assert verdict is not None
    again = asyncio.run(wglm.Model.demo_async(verdicts=[verdict]))
    assert again.verdict == verdict
    with model:
        assert repr(model).startswith("Model(")
    with pytest.raises(wglm.InvalidInput, match="the model is closed"):
        wglm.Chat(model)


def test_a_load_that_is_not_wanted_any_more() -> None:
    def give_up(_: wglm.LoadProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wglm.Model.demo(give_up)

    async def main() -> None:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def show(_: wglm.LoadProgress) -> None:
            loop.call_soon_threadsafe(begun.set)

        task = asyncio.create_task(wglm.Model.demo_async(show))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_files_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        wglm.Model.load(tmp_path / "missing.gguf")
    assert isinstance(missing.value, wglm.NotFound) and "missing.gguf" in str(missing.value)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\3\0\0\0" + bytes(40))
    with pytest.raises(wglm.InvalidFile):
        wglm.Model.load(broken)
    assert wglm.estimate(broken).why_not
    with pytest.raises(wglm.InvalidInput, match="cache is 'f64'"):
        wglm.Model.load(broken, cache="f64")  # type: ignore[arg-type]


def test_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert wglm.__version__ == wglm.version()
    assert any(adapter.name for adapter in wglm.adapters())
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(wglm.NotFound):
        wglm.find_model("nobody/nothing")
    with pytest.raises(wglm.WglmError):
        wglm.pull("nobody/nothing")
    with pytest.raises(wglm.InvalidInput):
        wglm.pull("not a name")


def test_a_download_goes_where_it_should(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with hub({"model-Q4_0.gguf": b"not a model" * 100}) as (address, requests):
        monkeypatch.setenv("HF_ENDPOINT", address)
        path = wglm.pull("owner/repo:Q4_0", folder=tmp_path / "models", token="hf_mine", revision="v2")
        assert Path(path).read_bytes() == b"not a model" * 100
        assert Path(path).is_relative_to(tmp_path / "models")
        assert requests[0] == ("/api/models/owner/repo/revision/v2?blobs=true", "Bearer hf_mine")
        with pytest.raises(wglm.NotFound, match="found Q4_0"):
            asyncio.run(wglm.pull_async("owner/repo:Q8_0", folder=tmp_path / "models"))


@contextmanager
def hub(files: dict[str, bytes]) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A hub with one repository. The paths and authorizations of its requests follow its address."""
    requests: list[tuple[str, str | None]] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers["Authorization"]))
            contents = files.get(self.path.rsplit("/", 1)[-1])
            self.answer(listing(files) if self.path.startswith("/api/") else contents)

        def answer(self, body: bytes | None) -> None:
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()


def listing(files: dict[str, bytes]) -> bytes:
    siblings = [
        {"rfilename": name, "size": len(bytes), "lfs": {"sha256": sha256(bytes).hexdigest(), "size": len(bytes)}}
        for name, bytes in files.items()
    ]
    return json.dumps({"sha": "1" * 40, "siblings": siblings}).encode()


def test_a_tuning(model: wglm.Model) -> None:
    shown: list[wglm.TuneProgress] = []

    def show(progress: wglm.TuneProgress) -> None:
        shown.append(progress)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        model.tune(60, show)
    assert len(shown) == 1 and 0 <= shown[0].share <= 1 and shown[0].doing
    assert wglm.Model.demo(tuning=model.tune(0.1)).context > 0

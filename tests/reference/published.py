"""Compares the tokens and prompts that wglm makes with those of other programs, for published vocabularies and templates.

    pip install jinja2
    python tests/reference/published.py target/release/wglm LLAMA_CPP/models

LLAMA_CPP is a checkout of llama.cpp, or its sources in the sdist of llama-cpp-python (0.3.36 has those named here).

* Tokens: `ggml-vocab-NAME.gguf.inp` holds texts and `.out` the tokens that llama.cpp makes of each.
* Prompts: the templates in `templates/`, rendered by jinja2 in the environment that transformers uses; what that refuses, wglm has to
  refuse. wglm reads a template
  from a file, so each is put into a copy of the demonstration model.

Prints what differs, and exits with status 1 if anything does.
"""

import datetime
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.sandbox

VOCABULARIES = ["deepseek-llm", "deepseek-coder", "qwen2", "llama-bpe", "gpt-2"]
TEMPLATES = [
    "GLM-4.7-Flash", "GLM-4.6", "GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B", "Kimi-K2-Instruct", "Kimi-K2-Thinking",
    "deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.2", "Qwen-Qwen3-0.6B",
]
DEMONSTRATION = Path(__file__).parents[2] / "models" / "fable-10m-q4_0.gguf"
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "Get the \"weather\" of Köln",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "a city <b>"}, "days": {"type": "integer", "minimum": 1},
            "units": {"type": "string", "enum": ["c", "f"]}, "more": {"type": "array", "items": {"type": "string"}}}}}},
    {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}},
]


def call(number, **arguments):
    return {"id": f"functions.weather:{number}", "type": "function",
            "function": {"name": "weather", "arguments": arguments}}


def result(number, content):
    return {"role": "tool", "tool_call_id": f"functions.weather:{number}", "content": content}


CONVERSATIONS = [
    [{"role": "user", "content": "Hi <b> \"x\""}],
    [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": "Hi"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "hm\nyes"},
     {"role": "user", "content": "c"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm</think>\n\nb"},
     {"role": "user", "content": "c"}],
    [{"role": "user", "content": "w?"},
     {"role": "assistant", "content": "", "reasoning_content": "look", "tool_calls": [
         call(0, city="Köln", days=2, more=["a", "b"], n=None, t=True, f=1.5)]},
     result(0, "rain \"x\" é")],
    [{"role": "system", "content": "s"}, {"role": "user", "content": "w?"},
     {"role": "assistant", "content": "I look.", "tool_calls": [call(0, city="R"), call(1, city="P")]},
     result(0, "{\"a\": 1}"), result(1, "sun"), {"role": "assistant", "content": "Sun."},
     {"role": "user", "content": "ok"}],
]


def run(*command, text):
    return subprocess.run([str(part) for part in command], input=text.encode(), capture_output=True, check=False)


def tokens_differ(wglm, models, name):
    """How many texts of a vocabulary give other tokens than llama.cpp's."""
    file = models / f"ggml-vocab-{name}.gguf"
    texts = file.with_suffix(".gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    wanted = [[int(token) for token in line.split()] for line in file.with_suffix(".gguf.out").read_text().splitlines()]
    faults = 0
    for text, want in zip(texts, wanted):
        done = run(wglm, "tokenize", "--no-bos", "-m", file, "--json", "-", text=text)
        got = json.loads(done.stdout) if done.returncode == 0 else done.stderr.decode()
        if got != want:
            faults += 1
            print(f"{name}: {text!r}\n  wglm      {got}\n  llama.cpp {want}")
    print(f"{name}: {len(wanted)} texts, {faults} differ")
    return faults


def environment():
    """The environment in which transformers renders chat templates."""
    def fail(message):
        raise jinja2.exceptions.TemplateError(message)

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    made.filters["tojson"] = to_json
    made.globals.update(raise_exception=fail, strftime_now=lambda form: datetime.datetime.now().strftime(form))
    return made


def with_template(template, to):
    """Writes a copy of the demonstration model with another chat template."""
    data = DEMONSTRATION.read_bytes()
    version, tensors, keys = struct.unpack_from("<IQQ", data, 4)
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def string(at):
        return at + 8 + struct.unpack_from("<Q", data, at)[0]

    def value(kind, at):
        if kind in sizes:
            return at + sizes[kind]
        if kind == 8:
            return string(at)
        kind, count = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(count):
            at = value(kind, at)
        return at

    def text(content):
        return struct.pack("<Q", len(content.encode())) + content.encode()

    at, kept = 24, []
    for _ in range(keys):
        start, at = at, string(at)
        name = data[start + 8:at]
        at = value(struct.unpack_from("<I", data, at)[0], at + 4)
        if name != b"tokenizer.chat_template":
            kept.append(data[start:at])
    kept.append(text("tokenizer.chat_template") + struct.pack("<I", 8) + text(template))
    start = at
    for _ in range(tensors):
        at = string(at)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4 + 8
    header = data[:4] + struct.pack("<IQQ", version, tensors, len(kept)) + b"".join(kept) + data[start:at]
    to.write_bytes(header + bytes(-len(header) % 32) + data[(at + 31) // 32 * 32:])


def prompts_differ(wglm, models, name, folder):
    """How many prompts of a template are others than jinja2's."""
    source = (models / "templates" / f"{name}.jinja").read_text()
    model, tools_file = folder / "model.gguf", folder / "tools.json"
    with_template(source, model)
    tools_file.write_text(json.dumps(TOOLS))
    template, faults, count, refused = environment().from_string(source), 0, 0, 0
    for messages in CONVERSATIONS:
        for tools in (None, TOOLS):
            for thinks in (None, True, False):
                given = {"tools": tools, "enable_thinking": thinks, "thinking": thinks}
                given = {key: value for key, value in given.items() if value is not None}
                try:
                    want = template.render(messages=messages, add_generation_prompt=True, bos_token="[gMASK]",
                                           eos_token="<|endoftext|>", **given)
                except jinja2.exceptions.TemplateError:
                    want, refused = None, refused + 1
                options = ["--tools", tools_file] if tools else []
                options += [] if thinks is None else ["--reasoning", "on" if thinks else "off"]
                done = run(wglm, "template", "-m", model, "--messages", "-", *options, text=json.dumps(messages))
                got, count = done.stdout.decode() or done.stderr.decode(), count + 1
                same = done.returncode != 0 if want is None else got.rstrip("\n") == want.rstrip("\n")
                if not same:
                    faults += 1
                    print(f"{name}: {json.dumps(messages)} {given}\n  wglm   {got!r}\n  jinja2 {want!r}")
    print(f"{name}: {count} prompts, {faults} differ, {refused} refused by jinja2")
    return faults


def main():
    wglm, models = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    faults = sum(tokens_differ(wglm, models, name) for name in VOCABULARIES)
    with tempfile.TemporaryDirectory() as folder:
        faults += sum(prompts_differ(wglm, models, name, Path(folder)) for name in TEMPLATES)
    sys.exit(faults > 0)


main()

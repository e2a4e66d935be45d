"""The units of llama-server against `wglm serve`: llama_units.sh runs them, and README.md says what they found.

As a program it is the server that the units start: it translates llama-server's command line and becomes `wglm serve`.
With `--edit FOLDER` it edits the copy of the units in FOLDER, which expect the texts and numbers of tokens of their own
models. As a plugin of pytest it leaves out what does not apply and prints the table.
"""

import fnmatch
import os
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

# What units expect of their own models, and what takes its place: a file, a regular expression, a replacement.
EDITS = [
    ("*", r'"(prompt_n|n_saved|n_restored)"\] == (n_prompt|\d+)', r'"\1"] > 0'),
    ("*", r'"prompt_tokens"\] == n_prompt', '"prompt_tokens"] > 0'),
    ("*", r'"cached_tokens"\] == n_cache', '"cached_tokens"] >= min(n_cache, 1)'),
    ("test_rerank.py", r"\['prompt_tokens'\] == n_tokens", "['prompt_tokens'] > 0"),
    ("test_embedding.py", r"\['prompt_tokens'\] == (n_tokens|2 \* 9)", "['prompt_tokens'] > 0"),
    ("test_rerank.py", r'assert (most|least)_relevant\["index"\] == \d', r'assert \1_relevant["index"] < 4'),
    ("*", r'(system_fingerprint"?\]?)\.startswith\("b"\)', r'\1.startswith("wglm-")'),
    ("test_chat_completion.py", r'"prompt"\] == "<\|START.*"', '"prompt"].endswith("Hi there<|assistant|></think>")'),
    ("test_chat_completion.py", r"assert total_batch_count == batch_count", "assert total_batch_count >= 2"),
    ("test_completion.py", r'timings\["cache_n"\] == n_prompt', 'timings["cache_n"] > 0'),
    ("test_ctx_shift.py", r'"predicted_n"\] == n_token_output', '"predicted_n"] >= min(n_token_output, 230)'),
    ("test_speculative.py", r'"Hello " \* 248', '"Hello " * 60'),
    # In the first chunk of a stream, content is "", as in OpenAI's API, and not null.
    ("test_chat_completion.py", r'(delta\.content|\["delta"\]\["content"\]) is None', r'\1 in (None, "")'),
    ("utils.py", r"assert len\((choice\['delta'\])\['content'\]\) > 0", r"assert 'role' in \1 or \1['content']"),
]

# Units whose texts are not those of a model: of a grammar or a schema.
FIXED_TEXTS = ["test_completion_with_response_format", "test_completion_with_json_schema",
               "test_completion_with_grammar"]

# The models of the units never end a reply; that of wglm is told not to, on these paths and in these units.
ENDLESS_PATHS = ["/completion", "/completions", "/v1/completions"]
ENDLESS = ["test_chat_completion[", "test_chat_completion_stream["]

# Units that do not apply, and why: patterns of file::test[parameters].
FILES = "of llama-server's own file or log"
ROUTER = "wglm has no processes for models: it loads several into its own"
SHIFT = "wglm does not shift the context; conversations drop old turns (--overflow)"
SLEEP = "wglm does not sleep; models without requests are unloaded (--keep-alive)"
TEMPLATE = "of another model's template; wglm uses that of the file"
TOOLS = "wglm runs no tools and is no proxy"
VISION = "wglm reads text only"
DO_NOT_APPLY = [
    ("test_embedding.py::test_embedding_pooling_none*", "a vector is always the mean over its text"),
    ("test_infill.py::*", "the vocabulary has no tokens for infill, which is refused"),
    ("test_lora.py::*", "wglm loads no adapters"),
    ("test_mcp_servers.py::*", TOOLS),
    ("test_tools_builtin.py::*", TOOLS),
    ("test_proxy.py::*", TOOLS),
    ("test_security.py::test_cors_proxy_*", TOOLS),
    ("test_security.py::test_cors_origins_*", "wglm allows the origins that --cors names, and no others"),
    ("test_security.py::test_cors_options*", "wglm allows the origins that --cors names, and no others"),
    ("test_security.py::test_access_static_assets*", "the page of wglm is a single file"),
    ("test_security.py::test_local_media_file*", VISION),
    ("test_vision_api.py::*", VISION),
    ("test_compat_anthropic.py::*vision*", VISION),
    ("test_slot_save.py::test_slot_*image*", VISION),
    ("test_slot_save.py::test_slot_*multimodal", VISION),
    ("test_slot_save.py::test_slot_restore_media*", VISION),
    ("test_slot_save.py::test_slot_restore_legacy*", FILES),
    ("test_kv_keep_only_active.py::*", FILES),
    ("test_router.py::*", ROUTER),
    ("test_stream.py::*", ROUTER),
    ("test_sleep.py::*", SLEEP),
    ("test_compat_gcp.py::*", "wglm has no interface for Google's predictions"),
    ("test_ctx_shift.py::test_ctx_shift_enabled", SHIFT),
    ("test_speculative.py::test_with_ctx_shift", SHIFT),
    ("test_speculative.py::test_synth_*", "wglm has no synthetic guesses"),
    ("test_speculative.py::test_with_and_without_draft", "wglm has no synthetic guesses"),
    ("test_template.py::*", TEMPLATE),
    ("test_compat_anthropic.py::*history_in_template", TEMPLATE),
    ("test_chat_completion.py::test_chat_template", TEMPLATE),
    ("test_chat_completion.py::*prefill*", TEMPLATE),
    ("test_chat_completion.py::*vllm_compat", TEMPLATE),
    ("test_completion.py::test_n_probs_post_backend_sampling", "wglm has one sampler"),
    ("test_tokenize.py::test_tokenize_with_bos", "no token precedes the texts of the model"),
    ("test_basic.py::test_load_split_model", "its model cannot be downloaded"),
    ("test_basic.py::test_server_multiple_addresses", "wglm listens at one address"),
    ("test_basic.py::test_server_slots", "/slots cannot be turned off"),
    ("test_metrics.py::test_metrics_disabled", "/metrics cannot be turned off"),
    ("test_basic.py::test_no_ui", "with --no-page, / is a line of text for programs that look for Ollama"),
]

# Units that fail, and why.
SETTINGS = "/completion repeats neither the prompt nor the settings, and has no response_fields"
TIMINGS = "timings come at the end of a reply only (timings_per_token, prompt_progress)"
TOO_LONG = "a prompt that is too long gets OpenAI's type of error and Anthropic's message"
OBJECTS = "an input of objects, or of texts and tokens in one list, is refused with 400"
METRICS = "the names in /metrics begin with wglm_, and there is no header Process-Start-Time-Unix"
KNOWN_FAILURES = [
    ("test_basic.py::test_server_model_aliases_and_tags", "a model has one name and no tags"),
    ("test_chat_completion.py::test_completion_with_grammar*", "grammar (GBNF) is refused with 400"),
    ("test_chat_completion.py::test_invalid_*[messages7]", "messages of the assistant may follow each other"),
    ("test_chat_completion.py::test_context_size_exceeded*", TOO_LONG),
    ("test_ctx_shift.py::test_ctx_shift_disabled_long_prompt", TOO_LONG),
    ("test_chat_completion.py::test_verbose_debug", "answers have no __verbose"),
    ("test_compat_anthropic.py::test_anthropic_messages_basic", "answers of Anthropic's API have timings too"),
    ("test_compat_anthropic.py::*result_with_image", "a sentence takes the place of an image in a result"),
    ("test_compat_anthropic.py::test_anthropic_empty_messages", "400 without messages, as from Anthropic"),
    ("test_compat_oai_responses.py::*telemetry", TIMINGS),
    ("test_completion.py::test_completion_stream[*", "streams have ids of tokens only with return_tokens"),
    ("test_completion.py::test_completion_response_fields*", SETTINGS),
    ("test_embedding.py::test_embedding_error_prompt_too_long", TOO_LONG),
    ("test_embedding.py::test_embedding_mixed_input[-*", "an empty text is refused with 400, as by OpenAI"),
    *((f"test_embedding.py::test_embedding_mixed_input[input{n}-*", OBJECTS) for n in (3, 7, 8, 9, 10)),
    ("test_embedding.py::test_embedding_content_text_same_as_string", OBJECTS),
    ("test_ignore_eos.py::*", SETTINGS),
    ("test_completion.py::test_n_probs_stream", "a chunk can have several tokens"),
    ("test_completion.py::test_n_probs_post_sampling", "post_sampling_probs is refused with 400"),
    ("test_metrics.py::test_metrics_embedding_prompt_is_counted", METRICS),
    ("test_metrics.py::test_metrics_prometheus_format", METRICS),
    ("test_metrics.py::test_metrics_prompt_processed_and_cached", METRICS),
    ("test_metrics.py::test_metrics_predicted_total*", METRICS),
    ("test_metrics.py::test_metrics_timings_on_prompt_progress", TIMINGS),
    ("test_slot_save.py::test_slot_save_restore", "id_slot has no effect, so the slot that is saved is empty"),
]

SWITCHES = {"--offline", "--cont-batching", "--embedding", "--reranking", "--metrics", "--kv-unified", "--swa-full",
            "--slots", "--no-slots", "--verbose", "--context-shift", "--no-ui", "--no-models-autoload", "--jinja",
            "--no-jinja", "--no-mmproj", "--no-cache-idle-slots", "--ui-mcp-proxy", "--backend_sampling"}
SAME = {"--port", "--host", "--temp", "--seed", "--alias", "--n-predict", "--api-key", "--slot-save-path"}


def translated(args):
    """The command line of `wglm serve` for one of llama-server."""
    given, words = {}, iter(args)
    for word in words:
        given[word] = "" if word in SWITCHES else next(words)
    slots, context = int(given.get("--parallel", 4)), int(given.get("--ctx-size", 4096))
    together = "--kv-unified" in given
    command = ["--ctx-size", context if together else context // slots, "--parallel", slots, "--grace", 1]
    command += ["--kv-tokens", context] if together else []
    command += ["--ubatch-size", given["--batch-size"]] if "--batch-size" in given else []
    command += ["--no-page"] if "--no-ui" in given else []
    # The models of the units do not think.
    command += ["--reasoning", "on" if given.get("--reasoning") == "on" else "off"]
    for name in SAME.intersection(given):
        command += [name, given[name]]
    return [str(word) for word in command]


def edit(folder):
    for path in [*Path(folder).glob("unit/*.py"), Path(folder, "utils.py")]:
        text = path.read_text()
        for file, old, new in EDITS:
            if fnmatch.fnmatch(path.name, file):
                text, count = re.subn(old, new, text)
                assert count or file == "*", f"{path.name} has no {old}"
        path.write_text(text)


def reason(name, of):
    """Why a unit of this name is in a list."""
    return next((why for pattern, why in of if fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))), None)


def name(nodeid):
    return nodeid.removeprefix("unit/")


def pytest_configure():
    import utils

    utils.ServerPreset.load_all = lambda: None  # nothing is downloaded
    utils.download_file = lambda url, *_: os.path.basename(url)
    real = utils.match_regex
    utils.match_regex = lambda regex, text: real(regex, text) if is_in(FIXED_TEXTS) else isinstance(text, str)
    for method in ["make_request", "make_stream_request"]:
        setattr(utils.ServerProcess, method, endless(getattr(utils.ServerProcess, method)))


def is_in(units):
    return any(unit in os.environ.get("PYTEST_CURRENT_TEST", "") for unit in units)


def endless(request):
    """The same request, which asks for a reply without an end where that is expected."""

    def asked(server, method, path, data=None, *args, **named):
        if isinstance(data, dict) and (path in ENDLESS_PATHS or is_in(ENDLESS)):
            data = {"ignore_eos": True, **data}
        return request(server, method, path, data, *args, **named)

    return asked


LEFT_OUT, OUTCOMES, FAILED = {}, {}, {}


def pytest_collection_modifyitems(config, items):
    for item in items:
        why = "needs a large model of its own" if item.get_closest_marker("slow") else None
        why = why or reason(name(item.nodeid), DO_NOT_APPLY)
        if why:
            LEFT_OUT[name(item.nodeid)] = why
    config.hook.pytest_deselected(items=[item for item in items if name(item.nodeid) in LEFT_OUT])
    items[:] = [item for item in items if name(item.nodeid) not in LEFT_OUT]


def pytest_runtest_logreport(report):
    unit = name(report.nodeid)
    if report.failed:
        OUTCOMES[unit] = "failed"
        FAILED[unit] = str(getattr(report.longrepr, "reprcrash", report.longrepr))
    elif report.skipped:
        LEFT_OUT[unit] = report.longrepr[2].removeprefix("Skipped: ")
    elif report.when == "call":
        OUTCOMES.setdefault(unit, "passed")


def pytest_sessionfinish(session):
    """Fails only if a unit fails that is not known to fail, or passes although it is."""
    if session.exitstatus in (0, 1):
        session.exitstatus = int(any((unit in FAILED) != bool(reason(unit, KNOWN_FAILURES)) for unit in OUTCOMES))


def pytest_terminal_summary(terminalreporter):
    write = terminalreporter.write_line
    files = defaultdict(Counter)
    for unit, outcome in [*OUTCOMES.items(), *((unit, "left out") for unit in LEFT_OUT)]:
        files[unit.split("::")[0]][outcome] += 1
    write(f"\n{'file':<32}{'passed':>8}{'failed':>8}{'do not apply':>14}")
    rows = [*sorted(files.items()), ("all", sum(files.values(), Counter()))]
    for file, counts in rows:
        write(f"{file:<32}{counts['passed']:>8}{counts['failed']:>8}{counts['left out']:>14}")
    failed = {unit: reason(unit, KNOWN_FAILURES) or f"NOT KNOWN: {text}" for unit, text in FAILED.items()}
    passed = {unit: "KNOWN TO FAIL" for unit in OUTCOMES if unit not in FAILED and reason(unit, KNOWN_FAILURES)}
    for title, group in [("do not apply", LEFT_OUT), ("failed", failed), ("passed", passed)]:
        by_reason = defaultdict(Counter)
        for unit, why in group.items():
            file, test = unit.split("::", 1)
            by_reason[file, why][test.split("[")[0]] += 1
        for (file, why), units in sorted(by_reason.items()):
            is_all = units.total() == files[file].total()
            names = "all" if is_all else ", ".join(f"{test} ({n})" if n > 1 else test for test, n in units.items())
            write(f"{title}: {file}: {names}: {why}")


if __name__ == "__main__":
    if sys.argv[1] == "--edit":
        edit(sys.argv[2])
    else:
        os.execv(os.environ["WGLM"], ["wglm", "serve", *translated(sys.argv[1:])])

"""Coding agents, each through a round trip: its prompt, a call of one of its tools, the tool's result, the reply.

The agents are installed from npm (see `agents.sh`) and run with their own prompts and tools, uncut. The model is a
scripted one, which cannot decide to call a tool. So a relay between the agent and the server asks for a call of one
harmless tool (`tool_choice`) wherever a request has no result of it yet, and changes nothing else. It also keeps the
requests, which show whether the result was sent back.
"""

import atexit
import http.client
import http.server
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import urllib.parse

import scripted_model
import serving

BIN = os.environ["AGENTS"]
FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures/fable/fable-10m-f16.gguf"
SECONDS = 3600

folder = pathlib.Path(tempfile.mkdtemp())
scripted_model.write(FIXTURE, folder / "scripted.gguf")
server = serving.Server("-m", str(folder / "scripted.gguf"), "-c", "131072", "-np", "2", "-ub", "2048", "--timeout", str(SECONDS))
atexit.register(server.kill)


class Relay(http.server.ThreadingHTTPServer):
    """Passes requests on, and asks for a call of `tool` where no result of it is in the request."""

    def __init__(self, tool):
        super().__init__(("127.0.0.1", 0), Passing)
        self.tool, self.requests, self.failures = tool, [], []
        self.url = "http://127.0.0.1:%d" % self.server_port
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Passing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if body:
            body = json.dumps(self.asking(json.loads(body))).encode()
        headers = {key: value for key, value in self.headers.items() if key.lower() not in ("host", "content-length")}
        link = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=SECONDS)
        link.request(self.command, self.path, body, headers)
        answer = link.getresponse()
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(key, value)
        self.send_header("connection", "close")
        self.end_headers()
        whole = b""
        while piece := answer.read1(65536):
            whole += piece
            self.wfile.write(piece)
            self.wfile.flush()
        if answer.status >= 400:
            self.server.failures.append(f"{self.command} {self.path}: {answer.status} {whole.decode()[:500]}")
        self.close_connection = True

    do_GET = do_POST = do_HEAD = pass_on

    def asking(self, body):
        self.server.requests.append(body)
        if self.server.tool not in json.dumps(body.get("tools", [])) or results(body):
            return body
        return {**body, "tool_choice": choice(self.path, self.server.tool)}


def choice(path, tool):
    if path.startswith("/v1/messages"):
        return {"type": "tool", "name": tool}
    if path.startswith("/v1/responses"):
        return {"type": "function", "name": tool}
    return {"type": "function", "function": {"name": tool}}


def results(body):
    """The results of tools in a request of any interface."""
    found = []
    for item in body.get("messages", []) + (body["input"] if isinstance(body.get("input"), list) else []):
        if item.get("role") == "tool" or item.get("type") == "function_call_output":
            found.append(item)
        if isinstance(item.get("content"), list):
            found += [part for part in item["content"] if part.get("type") == "tool_result"]
    return found


def offered(requests):
    """The names of the tools of all requests."""
    tools = [tool.get("function", tool) for body in requests for tool in body.get("tools", [])]
    return sorted({tool.get("name", tool.get("type", "")) for tool in tools})


def round_trip(tool, command, variables, files=()):
    """Runs an agent, and checks that its tool was called, that the result was sent, and that it printed the reply."""
    home = pathlib.Path(tempfile.mkdtemp())
    work = home / "work"
    work.mkdir()
    relay = Relay(tool)
    for name, text in files:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("RELAY", relay.url))
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    environment = {**kept, "HOME": str(home), **{key: value.replace("RELAY", relay.url) for key, value in variables}}
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    agent = subprocess.run(
        [f"{BIN}/{command[0]}", *command[1:]],
        cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    relay.shutdown()
    said = f"{agent.stdout[-2000:]}\n{agent.stderr[-2000:]}"
    assert not relay.failures, relay.failures
    assert agent.returncode == 0, f"status {agent.returncode}: {said}"
    sent = [result for body in relay.requests for result in results(body)]
    assert sent, f"no result of {tool} in {len(relay.requests)} requests, which offer {offered(relay.requests)}: {said}"
    assert scripted_model.REPLY in agent.stdout, said
    longest = max(len(json.dumps(body)) for body in relay.requests)
    print(f"     {len(relay.requests)} requests, the longest with {longest} bytes; {str(sent[0])[:160]}")


def codex():
    config = (
        'model = "wglm"\nmodel_provider = "wglm"\n[model_providers.wglm]\nname = "wglm"\n'
        'base_url = "RELAY/v1"\nwire_api = "responses"\n'
    )
    command = ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Make a plan."]
    round_trip("get_goal", command, [], [(".codex/config.toml", config)])


def claude_code():
    variables = [
        ("ANTHROPIC_BASE_URL", "RELAY"), ("ANTHROPIC_AUTH_TOKEN", "none"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ]  # fmt: skip
    round_trip("ListAgents", ["claude", "-p", "Make a plan."], variables)


def opencode():
    models = {"wglm": {"limit": {"context": 131072, "output": 4096}}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "RELAY/v1"}, "models": models}
    config = {"provider": {"wglm": provider}, "model": "wglm/wglm", "autoupdate": False}
    files = [("work/opencode.json", json.dumps(config))]
    round_trip("todowrite", ["opencode", "run", "Make a plan."], [], files)


def qwen_code():
    variables = [("OPENAI_BASE_URL", "RELAY/v1"), ("OPENAI_API_KEY", "none"), ("OPENAI_MODEL", "wglm")]
    command = ["qwen", "--auth-type", "openai", "--yolo", "-p", "Make a plan."]
    round_trip("list_agents", command, variables)


serving.run([codex, claude_code, opencode, qwen_code])

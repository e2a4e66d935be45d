"""Servers for the checks, and how checks are run and counted."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

WGLM = os.environ["WGLM"]
QUESTION = "What is seven plus five?"
ANSWER = "Seven plus five is twelve."


class Server:
    """`wglm serve` on a free port, with the demonstration model."""

    def __init__(self, *args):
        command = [WGLM, "serve", "--port", "0", "-c", "1024", *args]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        self.url = line.strip().removeprefix("listening at ")
        assert self.url.startswith("http://"), line
        self.wait()

    def wait(self):
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=10)
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise AssertionError("the server does not become ready")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def run(checks):
    """Runs the checks whose names contain the first argument, and ends with the number of those that failed."""
    wanted = sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1][0].isdigit() else ""
    failed = 0
    for check in checks:
        if wanted not in check.__name__:
            continue
        start = time.time()
        try:
            check()
            print(f"ok   {check.__name__} ({time.time() - start:.1f} s)", flush=True)
        except Exception as error:  # whatever a client throws is a failure of the check
            failed += 1
            print(f"FAIL {check.__name__}: {type(error).__name__}: {error}", flush=True)
    sys.exit(min(failed, 70))

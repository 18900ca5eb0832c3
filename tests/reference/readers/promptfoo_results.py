"""Write promptfoo's results beside this script, by promptfoo itself: its command line, its server, its export.

``python promptfoo_results.py PATH_OF_PROMPTFOO`` (0.121.20 made what is here; needs Node, no network). Two providers,
15 questions and 2 repeats make 60 results, by the configuration in ``promptfoo_config``. Of question 7 the second
repeat of ``better`` ends with an error; the grader answers with no JSON to question 4 of ``base``, which promptfoo
writes as a score of 0 under a mark. Every third question's first repeats are then rated by hand as its page does it:
what is sent to the server is what the page sends. Left out of the frozen file: tokens, times, prompts of the grader,
this machine.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PORT = 15987
REASON = "Manual result (overrides all other grading results)"
# What says nothing of a score, and differs from run to run or from machine to machine.
VARYING = {
    "completionDetails", "cost", "durationMs", "evaluationDurationMs", "latencyMs", "metrics", "nodeVersion",
    "platform", "arch", "renderedGradingPrompt", "runtimeOptions", "tokenUsage", "tokensUsed", "totalLatencyMs",
}  # fmt: skip


def main(promptfoo: str) -> None:
    """Evaluate, rate, export, and keep what is not of this run alone."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(HERE / "promptfoo_config", scratch, dirs_exist_ok=True)
        switches = (
            "PROMPTFOO_DISABLE_TELEMETRY",
            "PROMPTFOO_DISABLE_UPDATE",
            "PROMPTFOO_DISABLE_REMOTE_GENERATION",
        )
        env = os.environ | dict.fromkeys(switches, "1") | {"PROMPTFOO_CONFIG_DIR": f"{scratch}/state"}

        def call(*words: str) -> None:
            subprocess.run([promptfoo, *words], cwd=scratch, env=env, check=False)  # 100: an assertion failed

        call("eval", "-c", "config.json", "--repeat", "2", "--no-cache", "-j", "1", "-o", "first.json")
        first = json.loads(Path(scratch, "first.json").read_text())
        server = subprocess.Popen([promptfoo, "view", "-n", "-p", str(PORT)], cwd=scratch, env=env)
        try:
            for one in first["results"]["results"]:
                if (
                    one["testIdx"] % 2 == 0 and one["vars"]["n"] % 3 == 1
                ):  # both repeats of a question stand together
                    _rate(first["evalId"], one)
        finally:
            server.terminate()
            server.wait()
        call("export", "eval", first["evalId"], "-o", "rated.json")
        rated = json.loads(Path(scratch, "rated.json").read_text())
    (HERE / "promptfoo").mkdir(exist_ok=True)
    (HERE / "promptfoo" / "results.json").write_text(
        json.dumps(_kept(rated), indent=1) + "\n", encoding="utf-8"
    )


def _rate(of: str, result: dict[str, Any]) -> None:
    """A thumb, as the page sends it: the rating is one more component and takes the place of the whole's score."""
    up = result["vars"]["n"] % 2 == result["promptIdx"]
    thumb = {"pass": up, "score": int(up), "reason": REASON}
    grading = result["gradingResult"]
    parts = [*grading["componentResults"], thumb | {"assertion": {"type": "human"}}]
    body = json.dumps(grading | thumb | {"componentResults": parts}).encode()
    url = f"http://localhost:{PORT}/api/eval/{of}/results/{result['id']}/rating"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    for left in range(30, -1, -1):
        try:
            urllib.request.urlopen(request).read()
            return
        except urllib.error.URLError as error:
            if left == 0 or not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(1)  # the server is not up yet


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _kept(one) for name, one in value.items() if name not in VARYING}
    return [_kept(one) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main(sys.argv[1])

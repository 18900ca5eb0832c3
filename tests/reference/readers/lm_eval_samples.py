"""Write samples of lm-evaluation-harness beside this script, by its own command line.

Run by an interpreter that has ``lm-eval`` (0.4.13 made what is here) and torch, which the harness imports:
``python lm_eval_samples.py``. Its dummy model, with answers that are set beforehand in the place of its one, is run
under two names on the task of ``lm_eval_config``: 30 questions under two filters are 60 lines of each model.
"""

import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SHARE = {"org/base": 0.4, "org/better": 0.7}  # of right answers


def main() -> None:
    """Run the task under both models and keep the samples."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.registry import register_model
    from lm_eval.models.dummy import DummyLM

    @register_model("set_beforehand")
    class SetBeforehand(DummyLM):
        """The dummy, with an answer for each question and name."""

        @classmethod
        def create_from_arg_obj(cls, given: dict, more: dict | None = None) -> "SetBeforehand":
            model = cls()
            model.name = given["pretrained"]
            return model

        @classmethod
        def create_from_arg_string(cls, given: str, more: dict | None = None) -> "SetBeforehand":
            return cls.create_from_arg_obj({"pretrained": given.partition("=")[2]})

        def generate_until(self, requests: list, disable_tqdm: bool = False) -> list[str]:
            return [_answer(self.name, request.arguments[0]) for request in requests]

    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(HERE / "lm_eval_config", scratch, dirs_exist_ok=True)
        os.chdir(scratch)
        documents = [{"question": f"What is {k} + {k % 4}?", "answer": str(k + k % 4)} for k in range(30)]
        Path("qa.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents), encoding="utf-8")
        for name in SHARE:
            words = ["--model", "set_beforehand", "--model_args", f"pretrained={name}", "--tasks", "qa"]
            sys.argv = [
                "lm_eval",
                "run",
                *words,
                "--include_path",
                ".",
                "--log_samples",
                "--output_path",
                "out",
            ]
            cli_evaluate()
        shutil.rmtree(HERE / "lm_eval", ignore_errors=True)
        for path in Path("out").glob("*/samples_*.jsonl"):
            (HERE / "lm_eval" / path.parent.name).mkdir(parents=True)
            shutil.copy(path, HERE / "lm_eval" / path.parent.name / path.name)
        os.chdir(HERE)


def _answer(name: str, question: str) -> str:
    rng = random.Random(f"{name}/{question}")
    k = int(question.split()[2])
    found = k + k % 4 + (0 if rng.random() < SHARE[name] else rng.randint(1, 4))
    return rng.choice([f"The answer is {found}.", f"It is {found}."])


if __name__ == "__main__":
    main()

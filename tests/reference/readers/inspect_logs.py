"""Write the logs of Inspect beside this script, with Inspect's own mock model and scores that are set beforehand.

Run by an interpreter that has ``inspect-ai`` (0.3.285 made what is here): ``python inspect_logs.py``. Two models, 15
questions and 2 epochs make 60 samples; the scorer ``judge`` gives letters, ``rubric`` an object of two numbers, and
``human`` labels every third sample. One sample ends with an error, and in one the judge's answer is no number.
In the zips that are frozen here the directories in this error's traceback were cut afterwards.
"""

import os
import random
import shutil
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
os.environ["INSPECT_LOG_FORMAT"] = "eval"


def main() -> None:
    """Run the task under both models, keep the zips, and one of them as JSON."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import ModelOutput, get_model
    from inspect_ai.scorer import Score, mean, scorer
    from inspect_ai.solver import solver

    def drawn(state: object) -> random.Random:
        return random.Random(f"{state.model}/{state.sample_id}/{state.epoch}")

    @scorer(metrics=[mean()])
    def judge():
        async def score(state, target):
            if state.sample_id == "q03" and state.epoch == 1:
                return Score(value="unclear")
            return Score(value=drawn(state).choice("CPI"))

        return score

    @scorer(metrics={"depth": [mean()], "tone": [mean()]})
    def rubric():
        async def score(state, target):
            rng = drawn(state)
            return Score(value={"depth": rng.randint(0, 4) / 4, "tone": rng.randint(0, 8) / 8})

        return score

    @scorer(metrics=[mean()])
    def human():
        async def score(state, target):
            return Score(value=drawn(state).randint(0, 4) / 4) if int(state.sample_id[1:]) % 3 == 0 else None

        return score

    @solver
    def answers():
        """Set the model's output: even to the mock model Inspect counts tokens, by a table from the net."""

        async def solve(state, generate):
            state.output = ModelOutput.from_content(
                str(state.model), "an answer of " * drawn(state).randint(1, 5)
            )
            if state.sample_id == "q07" and state.epoch == 2:
                raise RuntimeError("planned")
            return state

        return solve

    data = MemoryDataset(
        [Sample(id=f"q{k:02d}", input=f"question {k}", target="x") for k in range(15)], name="qa"
    )
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("base", "better"):
            task = Task(name="qa", dataset=data, solver=answers(), scorer=[judge(), rubric(), human()])
            log = eval(
                task, model=get_model(f"mockllm/{name}"), epochs=2, log_dir=scratch,
                fail_on_error=False, display="none", log_model_api=False, max_samples=1,
            )[0]  # fmt: skip
            shutil.copy(log.location.removeprefix("file://"), HERE / "inspect" / f"{name}.eval")
            whole = read_eval_log(log.location)
            for sample in whole.samples:
                sample.events = []
                if sample.error:  # its lines are paths of the machine that ran it
                    sample.error.traceback = sample.error.traceback_ansi = ""
            write_eval_log(whole, str(HERE / "inspect_json" / f"{name}.json"))


if __name__ == "__main__":
    (HERE / "inspect").mkdir(exist_ok=True)
    (HERE / "inspect_json").mkdir(exist_ok=True)
    main()

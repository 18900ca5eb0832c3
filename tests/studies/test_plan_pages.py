"""``cje-lab plan`` on a narrow terminal: no row loses its name."""

from functools import cache

import pytest
from pilot_worlds import worlds
from rich.cells import cell_len
from rich.console import Console

from cje_core.workflow.analyze import analyze
from cje_core.workflow.plan import plan
from studies.cli.planning.as_json import contrast_records, next_steps
from studies.cli.planning.tables import summary

COSTS = {"budget": 60.0, "cost_judge": 0.02, "cost_oracle": 0.3, "replicates": 20}


@cache
def planned_for(name):
    return plan(worlds()[name].table, **COSTS)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_every_row_of_every_table_keeps_its_name(width):
    planned = planned_for("probes_30")
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(summary(planned))
    text = captured.get()
    tables = text.split("pilot's spend")[0].split("\n\n")[1:]
    blocks = [block.splitlines() for block in tables if block.strip()]
    assert (len(blocks) > 2) == (width < 100)
    for block in blocks:
        names = [name for name in planned.policies if "difference" not in block[1] + block[0]]
        assert all(any(line.startswith(name[:8]) for line in block) for name in names)
    assert all(cell_len(line) <= width for line in text.splitlines())
    for header in ("sigma2 eval", "SE of the", "planned SE", "simulated SE", "detectable at"):
        assert header in text


@pytest.mark.slow
def test_an_inverted_judge_is_said_before_anything_is_bought():
    planned = plan(worlds()["judge_the_wrong_way"].table, **COSTS)
    first = next_steps(planned)[0]
    assert "ranks against the oracle" in first and "direction decreasing" in first
    guided = analyze(worlds()["judge_the_wrong_way"].table).guide["reason"].values
    assert any("declare the direction decreasing; else nothing" in reason for reason in guided)


@pytest.mark.slow
def test_a_plan_that_finds_no_difference_does_not_pass_for_sound():
    planned = plan(worlds()["useless_judge"].table, **COSTS)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(summary(planned))
    assert "which finds no difference between policies" in captured.get()


@pytest.mark.slow
def test_a_plan_for_one_policy_of_several_has_no_differences():
    alone = plan(worlds()["probes_30"].table, n_policies=1, **COSTS)
    assert contrast_records(planned_for("probes_30")) and not contrast_records(alone)

"""``cje-lab plan`` on a narrow terminal: no row loses its name."""

import pytest
from pilot_worlds import worlds
from rich.cells import cell_len
from rich.console import Console

from cje_core.workflow.plan import plan
from studies.cli.planning.tables import page

COSTS = {"budget": 60.0, "cost_judge": 0.02, "cost_oracle": 0.3, "replicates": 20}


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_every_row_of_every_table_keeps_its_name(width):
    planned = plan(worlds()["probes_30"].table, **COSTS)
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(page(planned))
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

"""The files of ``cje-lab plan --out``."""

import json
from pathlib import Path

import numpy as np

from cje_core.figures import mde_contours
from cje_core.figures.style import STYLE
from cje_core.planning.forecast import mde_surface
from cje_core.workflow.plan import Planned
from studies.cli.analysis.out import write_files
from studies.cli.analysis.panels import image
from studies.cli.planning.as_json import to_json
from studies.cli.redaction import hidden

FILES = ("plan.json", "mde.png")


def save(planned: Planned, out: Path, salt: str | None = None) -> None:
    """Write plan.json and mde.png; each is whole or absent, ids of prompts redacted."""
    text = json.dumps(hidden(to_json(planned), salt), indent=1, allow_nan=False) + "\n"
    contents = (text.encode("utf-8"), _contours(planned))
    write_files(out, dict(zip(FILES, contents, strict=True)), by="plan")


def _contours(planned: Planned) -> bytes:
    """Detectable differences over n and m / n, one panel per policy, the plan as a star, as PNG."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    known = [
        p for p in planned.policies if np.isfinite(planned.planned_components["std_error"].sel(policy=p))
    ]
    pilot_n, chosen = planned.planned_components.attrs["n"], planned.plan
    n_grid = np.unique(np.geomspace(min(pilot_n, chosen.n) / 2, 2 * max(pilot_n, chosen.n), 25).astype(int))
    fractions = np.geomspace(min(0.02, chosen.m / chosen.n / 2), 1.0, 25)
    with mpl.rc_context({**STYLE, "figure.dpi": 150}):
        size = (5.2 * max(len(known), 1), 4.2)
        figure, panels = plt.subplots(1, max(len(known), 1), figsize=size, squeeze=False)
        for panel, policy in zip(panels[0], known, strict=False):
            surface = mde_surface(
                planned.planned_components.sel(policy=policy, drop=True),
                n_grid,
                fractions,
                cost_judge=planned.cost_per_prompt,
                cost_oracle=planned.cost_per_label,
                power=planned.power,
            )
            mde_contours(surface, optimum=(chosen.n, chosen.m / chosen.n), ax=panel)
            title = f"{policy}\n{panel.get_title(loc='left')}"
            panel.set_title(title, loc="left", parse_math=False)
        content = image(figure)
        plt.close(figure)
    return content

"""The ledger as text for a terminal and as a Markdown document; both made of `studies.ledger.trial.ledger` alone."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from studies.ledger.trial import by_source

WORDS = {
    "holds": "holds",
    "holds_if": "holds if",
    "refuted": "refuted",
    "not_reproduced": "not reproduced",
    "undecided": "undecided",
}
COLOURS = {
    "holds": "green",
    "holds_if": "yellow",
    "refuted": "red",
    "not_reproduced": "magenta",
    "undecided": "cyan",
}


def table(claims: Sequence[Mapping[str, Any]]) -> Any:
    """A rich table: verdict, name, what was measured."""
    from rich.table import Table
    from rich.text import Text

    out = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("verdict", "claim", "measured", "seconds"):
        out.add_column(column, justify="right" if column == "seconds" else "left", overflow="fold")
    for claim in claims:
        found = claim["measured"] or claim["needs"]
        if claim["condition"]:
            found += f"; holds where {untexed(claim['condition'])}"
        out.add_row(
            Text(WORDS[claim["verdict"]], COLOURS[claim["verdict"]]),
            claim["id"],
            Text(found),
            f"{claim['seconds']:.1f}",
        )
    return out


def untexed(text: str) -> str:
    """Formulas as plain text, for a terminal.

    Examples
    --------
    >>> untexed("where $x = 1$")
    'where x = 1'
    """
    for tex, plain in (
        (r"\ge", ">="),
        (r"\le", "<="),
        (r"\ne", "!="),
        (r"\to", "->"),
        (r"\hat ", ""),
        (r"\|", "||"),
        ("\\", ""),
        ("$", ""),
    ):
        text = text.replace(tex, plain)
    return text


def document(found: Mapping[str, Any]) -> str:
    """The ledger as a Markdown document."""
    claims = found["claims"]
    lines = [
        "# The claims ledger",
        "",
        'What the paper "Causal Judge Evaluation" states and a computer can check, and what we ask beside it or put in '
        "its place (sources that begin with *ours*), each statement with a verdict and what it rests on. Made by "
        "`cje-lab claims --document docs/claims.md`: verdicts and measured numbers are computed; statements, reasons, "
        "conditions and cut-offs are written.",
        "",
        f"Profile {found['profile']}. **{found['summary']}.** "
        + " ".join(f"{name[0].upper()}{name[1:]}: {told}." for name, told in by_source(claims).items()),
        "",
        "*Holds*: no counterexample by random search and an optimiser, or exactly computed, or a simulation within the "
        "stated tolerance. *Holds if*: false in general, true under the condition given. *Refuted*: a counterexample "
        "that a second method confirms. *Not reproduced*: a number, the paper's or one that we ask for, that our "
        "computation or simulated world does not give; the paper's data was not used. *Undecided*: the text says what "
        "it would take. "
        "Every claim has a false variant that must not come out as holding; for tables that denies the sentences and "
        "tests the reading of the answers, not the study.",
        "",
        "Each statement is brought to left ≤ right, or left = right. A world is one choice of all probabilities; "
        "its size "
        'counts its parameters. "Breaks it by" is (left − right) / the larger of the two. A statement that '
        "something can "
        "be is shown by one world. Figures in brackets are Monte Carlo standard errors. The key number is what "
        "decides: "
        "both sides, at the world that breaks the statement or at the tightest.",
        "",
    ]
    lines += _overview(claims)
    for group in dict.fromkeys(claim["group"] for claim in claims):
        lines += [f"## {group.replace('_', ' ').capitalize()}", ""]
        for claim in claims:
            if claim["group"] == group:
                lines += _entry(claim)
    return "\n".join(lines).rstrip() + "\n"


def _overview(claims: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = ["| claim | verdict | key number |", "| --- | --- | --- |"]
    for claim in claims:
        number = (claim["measured"] or claim["needs"]).replace("|", r"\|")
        rows.append(f"| [{claim['id']}](#{claim['id']}) | {WORDS[claim['verdict']]} | {number} |")
    return [*rows, ""]


def _entry(claim: Mapping[str, Any]) -> list[str]:
    word = WORDS[claim["verdict"]]
    condition = f" {claim['condition']}" if claim["condition"] else ""
    lines = [
        f"### {claim['id']}",
        "",
        f"**{word[0].upper()}{word[1:]}{condition}.** {sentence(claim['statement'])}",
        "",
    ]
    lines += [f"*{claim['source']}.* {claim['why']}", ""]
    if claim["text"]:
        lines += [claim["text"], ""]
    if claim["needs"]:
        lines += [f"{sentence('what it would take: ' + claim['needs'])}", ""]
    if claim["repairs"]:
        lines += [f"It repairs [{claim['repairs']}](#{claim['repairs']}).", ""]
    if claim["rerun"]:
        lines += ["```", claim["rerun"], "```", ""]
    return lines


def capital(text: str) -> str:
    """A sentence that begins with a capital, unless it begins with a formula.

    Examples
    --------
    >>> capital("the mean is kept"), capital("$x$ is")
    ('The mean is kept', '$x$ is')
    """
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """With a capital and one full stop.

    Examples
    --------
    >>> sentence("the mean is kept"), sentence("It is kept.")
    ('The mean is kept.', 'It is kept.')
    """
    return capital(text).rstrip(".") + "."


def read(text: str) -> dict[str, Any]:
    """The ledger of a JSON file made by `cje-lab claims`."""
    found: dict[str, Any] = json.loads(text)
    return found

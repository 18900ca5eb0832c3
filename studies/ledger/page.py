"""The ledger as one self-contained page: a filter by verdict and word; each row opens its reasoning and its figure."""

import html
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from studies.ledger.shown import WORDS, sentence, untexed
from studies.ledger.trial import by_source

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 460, 220, 62, 28, 40
SEARCHED = ("id", "group", "source", "statement", "measured")  # by the page's filter
COLOURS = ("#0072b2", "#d55e00", "#009e73")
RELATED = r" (?=[-=+<>|/&]|\\(?:le|ge|ne|to|in|subseteq|subset|equiv|approx|sim|mid|perp|iff)\b)"
TEX = re.compile(r"\$([^$]+)\$")
SYMBOLS = {
    r"\alpha": "α", r"\beta": "β", r"\chi": "χ", r"\delta": "δ", r"\epsilon": "ε", r"\eta": "η", r"\theta": "θ",
    r"\pi": "π", r"\rho": "ρ", r"\sigma": "σ", r"\phi": "φ", r"\varphi": "φ", r"\omega": "ω", r"\mu": "μ", r"\Pi": "Π",
    r"\Sigma": "Σ", r"\Phi": "Φ", r"\Delta": "Δ", r"\Omega": "Ω", r"\le": "≤", r"\ge": "≥", r"\ne": "≠", r"\to": "→",
    r"\sum": "∑", r"\in": "∈", r"\langle": "⟨", r"\rangle": "⟩", r"\cdot": "·", r"\partial": "∂", r"\ell": "ℓ",
    r"\exp": "exp", r"\log": "log", r"\max": "max", r"\min": "min", r"\|": "‖", r"\{": "{", r"\}": "}", r"\,": " ",
    r"\quad": " ", r"\times": "×", r"\psi": "ψ", r"\gamma": "γ", r"\lambda": "λ", r"\perp": "⊥", r"\mid": "|",
    r"\Var": "Var", r"\infty": "∞", r"\approx": "≈", r"\sim": "∼", r"\subset": "⊂", r"\subseteq": "⊆", r"\circ": "∘",
    r"\iff": "⇔", r"\Rightarrow": "⇒", r"\int": "∫", r"\equiv": "≡", r"\star": "*", r"\ast": "*", r"\varepsilon": "ε",
    r"\uparrow": "↑", r"\propto": "∝", r"\lceil": "⌈", r"\rceil": "⌉",
}  # fmt: skip


@lru_cache(maxsize=1)
def template() -> Any:
    """The page's template."""
    from jinja2 import Environment

    source = (Path(__file__).parent / "page.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True).from_string(source)


def render(found: Mapping[str, Any]) -> str:
    """The page of a ledger."""
    claims = [
        {
            **claim,
            "word": WORDS[claim["verdict"]],
            "statement": formulas(sentence(claim["statement"])),
            "condition": formulas(claim["condition"]),
            "why": formulas(claim["why"]),
            "source": formulas(claim["source"]),
            "text": formulas(claim["text"]),
            "figure": figure(claim["curve"], claim["axes"]),
            "words": untexed(" ".join(claim[k] for k in SEARCHED)).lower(),
        }
        for claim in found["claims"]
    ]
    count = {name: sum(claim["verdict"] == name for claim in claims) for name in WORDS}
    groups = list(dict.fromkeys(claim["group"] for claim in claims))
    told = {"found": found, "claims": claims, "count": count, "words": WORDS, "groups": groups}
    return str(template().render(by_source=by_source(found["claims"]), **told))


def formulas(text: str) -> str:
    r"""Text with its formulas as HTML; TeX of the kind that the claims use, and no more.

    Examples
    --------
    >>> formulas(r"bound $\beta_T^2 \le 1$ & more")
    'bound <i class="tex">β<sub>T</sub><sup>2</sup> ≤ 1</i> &amp; more'
    >>> formulas(r"$\alpha = 1$, $\alpha \le \widehat{Var}$")
    '<i class="tex">α = 1</i>, <i class="tex">α ≤ V̂ar</i>'
    """
    out, last = [], 0
    for match in TEX.finditer(text):
        out += [html.escape(text[last : match.start()]), f'<i class="tex">{_tex(match[1])}</i>']
        last = match.end()
    return "".join([*out, html.escape(text[last:])])


def _tex(text: str) -> str:
    """One formula: symbols, fractions, roots, hats, sub- and superscripts."""
    text = html.escape(text, quote=False)
    text = text.replace("'", "′")
    for name, symbol in sorted(SYMBOLS.items(), key=lambda item: -len(item[0])):
        text = re.sub(re.escape(name) + RELATED, symbol + " ", text)  # TeX sets relations apart by itself
        text = text.replace(name + " ", symbol + (" " if symbol in SPACED else "")).replace(name, symbol)
    group = r"(\{(?:[^{}]|\{[^{}]*\})*\}|[^\s\\{}])"
    for _ in range(3):
        text = re.sub(
            r"\\d?frac\s*" + group + r"\s*" + group, lambda m: f"({_bare(m[1])})/({_bare(m[2])})", text
        )
        text = re.sub(r"\\sqrt\s*" + group, lambda m: f"√({_bare(m[1])})", text)
        text = re.sub(r"\\(?:wide)?(hat|bar|tilde)\s*" + group, lambda m: _accented(_bare(m[2]), m[1]), text)
        text = re.sub(r"_" + group, lambda m: f"<sub>{_bare(m[1])}</sub>", text)
        text = re.sub(r"\^" + group, lambda m: f"<sup>{_bare(m[1])}</sup>", text)
    return re.sub(r"\s+", " ", text.replace("{", "").replace("}", "").replace("\\", ""))


def _accented(text: str, accent: str) -> str:
    """An accent on a letter, or on the first of a word."""
    return text[:1] + ACCENTS[accent] + text[1:]


SPACED = ("≤", "≥", "≠", "→", "∈", "⊥", "⊂", "⊆", "⇔", "⇒", "≡", "≈", "∼", "|", "log", "max", "min")
ACCENTS = {"hat": "\u0302", "bar": "\u0304", "tilde": "\u0303"}


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("{") else text


def figure(curves: Mapping[str, Sequence[Sequence[float]]], axes: Sequence[str]) -> str:
    """Points and lines as SVG; nothing where there is no curve.

    Examples
    --------
    >>> figure({}, ("", "")), figure({"ttc": [(1, 0.5), (2, 0.25)]}, ("tokens", "TTC")).startswith("<svg")
    ('', True)
    """
    points = [point for curve in curves.values() for point in curve]
    points = [(x, y) for x, y in points if x == x and y == y and abs(y) < 1e300]
    if len(points) < 2:
        return ""
    (x0, x1), (y0, y1) = ((min(p[k] for p in points), max(p[k] for p in points)) for k in (0, 1))
    x1, y1 = x1 if x1 > x0 else x0 + 1, y1 if y1 > y0 else y0 + 1

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - BOTTOM - 14),
        )

    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(axes[1])}">']
    for k in range(5):
        x, y = x0 + k * (x1 - x0) / 4, y0 + k * (y1 - y0) / 4
        (px, _), (_, py) = place(x, y0), place(x0, y)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py:.1f}" y2="{py:.1f}" class="grid"/>')
        out.append(f'<text x="{LEFT - 6}" y="{py + 4:.1f}" text-anchor="end">{y:.3g}</text>')
        out.append(f'<text x="{px:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{x:.3g}</text>')
    for (name, curve), colour in zip(curves.items(), COLOURS * len(curves), strict=False):
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in (place(*p) for p in curve if p[1] == p[1]))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(curve) <= 12:
            for px, py in (place(*p) for p in curve if p[1] == p[1]):
                out.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>')
        if len(curves) > 1:
            px, py = place(*curve[-1])
            out.append(
                f'<text x="{px - 4:.1f}" y="{py - 6:.1f}" text-anchor="end" fill="{colour}">{html.escape(name)}</text>'
            )
    out.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(axes[0])}</text>'
    )
    return "".join([*out, "</svg>"]) + f"<figcaption>{html.escape(axes[1])}</figcaption>"

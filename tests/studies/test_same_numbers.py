"""Every number that a person can read about a cell is the same number: report, plots, tables and sentences.

The table of cells is made here a second time, by loops over cells and plain means over replicates. Results are those
of the smoke profile, as `make test` leaves them in ``results/smoke``; what is not there is run.
"""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import studies
from cje_core.figures.style import to_files
from studies.engine import run
from studies.engine.measures import REFUSALS, estimand_kind, performance
from studies.engine.outcome import NOT_RUN
from studies.engine.study import available, load
from studies.report import data, page, plots

MADE = Path(studies.__file__).parents[1] / "results" / "smoke"
SHOWN = ("coverage", "refused", "failed", "bias", "rmse", "width", "interval_score", "empirical_se")
# Numbers of sentences that are made of several cells on purpose (paired ratios, differences, shares over cells), by the
# words around them; each is held to its definition in the test of its study.
DERIVED = {
    "interval_coverage": ("at worst # standard errors",),
    "estimator_benchmark": ("a lead of #", "less that of direct: #", "its RMSE is #", "it takes #"),
    "judge_benchmark": ("on average over \\d+ cells, #",),
    "judge_information": ("simulated over exact is #",),
    "misclassification": (
        "simulated over exact it is #",
        "over the calibration's is #",
        "\\(exact [\\d.]+\\), #",
    ),
    "stacking": ("RMSE is #",),
    "tf_versus_coverage": ("gives #", "with errors, #", "orders rightly by #"),
    "ttc_collapse": ("largest difference is #", "Simulated RMSE says #", " to #"),
    "weight_diagnostics": ("runs of which #",),
}
# Figures of numbers that no table has: of single cells of a ranking, and a standard error times Youden's index.
BY_THEMSELVES = {
    "estimator_benchmark": "Pairwise accuracy by",
    "misclassification": "Own labels: standard errors by",
}
PAIR = re.compile(r"(?<![\d.])(-?\d*\.?\d+)%? \((\d*\.?\d+)\)")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Return a function from a study's name to its report, made once, of the smoke profile."""
    made = {}

    def read(name):
        if name not in made:
            out = tmp_path_factory.mktemp(name)
            if (MADE / name / "results.nc").exists():
                shutil.copytree(MADE / name, out / name)
            else:
                run.run_study(load(name), profile="smoke", out=out)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(page, "_figures", lambda item: {})  # drawn once, by `wrong_in_figures`
                made[name] = page.write(out)
        return made[name]

    return read


def cells(ds):
    """Return value and MCSE of each measure by (levels of the factors, method, policy), by loops over replicates."""
    factors = [str(d) for d in ds["estimate"].dims if d not in ("replicate", "method", "policy")]
    last = ("replicate", "method", "policy")
    arrays = [ds[name].transpose(*factors, *last).values for name in ("estimate", "std_error", "status")]
    interval = ds["interval"].transpose(*factors, *last, "ci_bound").values
    truth = ds["truth"].broadcast_like(ds["estimate"].isel({"method": 0}, drop=True))
    truth = truth.transpose(*factors, "replicate", "policy").values
    found = {}
    for place in np.ndindex(*(ds.sizes[f] for f in factors)):
        levels = tuple(ds[f].values[k] for f, k in zip(factors, place, strict=True))
        for m, method in enumerate(ds["method"].values.astype(str)):
            for p, policy in enumerate(ds["policy"].values.astype(str)):
                estimate, error, status = (a[place][:, m, p] for a in arrays)
                ends, true = interval[place][:, m, p], truth[place][:, p]
                if (status != NOT_RUN).any():
                    found[(*levels, method, policy)] = one_cell(estimate, error, ends, true, status, ds)
    return factors, found


def one_cell(estimate, std_error, interval, truth, status, ds):
    """Return {measure: value} of one cell; a measure without its data is NaN."""
    ran = status != NOT_RUN
    ok = ran & np.isfinite(estimate)
    printed = ok & np.isfinite(interval).all(axis=1)
    silent = ran & (~ok | (~printed & (printed.any() | ~np.isin(status, (0, 1)))))
    broken = np.isin(status, (-2, 11))
    out = dict.fromkeys(SHOWN, np.nan)
    out |= {"refused": (silent & ~broken).sum() / ran.sum(), "failed": (silent & broken).sum() / ran.sum()}
    error = (estimate - truth)[ok]
    if ok.any():
        out |= {"bias": error.mean(), "rmse": np.sqrt((error**2).mean())}
        if ok.sum() > 1:
            out["empirical_se"] = error.std(ddof=1)
    if printed.any():
        low, high, true = interval[printed, 0], interval[printed, 1], truth[printed]
        out["coverage"] = ((low <= true) & (true <= high)).mean()
        out["width"] = (high - low).mean()
        missed = np.maximum(low - true, 0) + np.maximum(true - high, 0)
        out["interval_score"] = (high - low + 2 / (1 - ds.attrs["ci_prob"]) * missed).mean()
    return out


def looked_up(table, name, factors, key, method, policy):
    """Return a measure of the table of cells; of "mean of a, b" the average over these policies."""
    members = policy.removeprefix("mean of ").split(", ") if policy.startswith("mean of ") else [policy]
    found = [table.get((*key, method, member), {}).get(name, np.nan) for member in members]
    return float(np.mean(found))


def located(frame, ds, factors):
    """Yield (row, key) of the rows of a table that name one cell of each factor, or are of the only one."""
    if "policy" not in frame and "design" in frame:  # the study of peers has a policy for each label design
        frame = frame.rename(columns={"design": "policy"})
    if "policy" not in frame and ds.sizes["policy"] == 1:
        frame = frame.assign(policy=str(ds["policy"].values[0]))
    if "policy" not in frame or not all(f in frame or ds.sizes[f] == 1 for f in factors):
        return
    if "verdict" in frame:  # of the transport audit: a cell's audits by what they said
        frame = frame[frame["verdict"] == "any"]
    for _, row in frame.iterrows():
        yield row, tuple(row[f] if f in frame else ds[f].values[0] for f in factors)


def wrong_in_tables(tables, ds):
    """Return what of a report's tables is not in the table of cells, and how many numbers were compared."""
    factors, table = cells(ds)
    methods, wrong, compared = ds["method"].values.astype(str).tolist(), [], 0
    for title, frame in tables.items():
        if "reference" in frame.attrs or "ratio" in title.lower() or "differences to" in title.lower():
            continue
        for row, key in located(frame, ds, factors):
            numbers = []
            if "method" in row and row["method"] in methods:
                numbers = [(row["method"], name, row[name]) for name in SHOWN if name in row]
            elif frame.attrs.get("measure") in SHOWN:
                for method in (m for m in methods if m in row):
                    numbers.append((method, frame.attrs["measure"], row[method]))
                    numbers += [
                        (method, one, row[f"{method}_{one}"]) for one in REFUSALS if f"{method}_{one}" in row
                    ]
            else:  # a row for each cell, a column for each method and measure
                pairs = ((m, name) for m in methods for name in SHOWN)
                numbers = [(m, name, row[f"{m}_{name}"]) for m, name in pairs if f"{m}_{name}" in row]
            for method, name, value in numbers:
                expected = looked_up(table, name, factors, key, method, str(row["policy"]))
                compared += 1
                if not np.isclose(float(value), expected, rtol=1e-9, atol=1e-12, equal_nan=True):
                    wrong.append((title, key, method, row["policy"], name, float(value), expected))
    return wrong, compared


class Tables(HTMLParser):
    """Rows of text of the tables of a report by study and title: the part that fits the page, then the whole."""

    def __init__(self):
        super().__init__()
        self.found, self.study, self.title, self.cell, self.rows = {}, "", "", None, []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "section":
            self.study = attrs["id"]
        elif tag == "h3":
            self.title, self.cell = "", "title"
        elif tag == "table":
            self.rows = []
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.cell, self.text = "cell", ""

    def handle_data(self, data):
        if self.cell == "title":
            self.title += data
        elif self.cell == "cell":
            self.text += data

    def handle_endtag(self, tag):
        if tag == "h3":
            self.cell = None
        elif tag in ("td", "th") and self.cell == "cell":
            self.rows[-1].append(self.text)
            self.cell = None
        elif tag == "table":
            self.found.setdefault((self.study, self.title), []).append(self.rows)


def wrong_in_page(report):
    """Return what an HTML report's tables show that is not the number of the study's table, at the digits shown."""
    parser, wrong = Tables(), []
    parser.feed(report.path.read_text(encoding="utf-8"))
    for item in report.items:
        for title, frame in item.tables.items():
            for head, *rows in parser.found[item.study.name, title]:
                names = [name.replace("_\n", "_").replace("\n", " ") for name in head]
                for shown, (_, row) in zip(rows, frame.iterrows(), strict=True):
                    wrong += [
                        (title, name, text, row[name])
                        for name, text in zip(names, shown, strict=True)
                        if not as_shown(text, row[name], row.get(f"{name}_mcse"))
                    ]
    return wrong


def as_shown(text, value, mcse):
    """Whether text is a number, and its error in brackets, at the digits shown."""
    if text.endswith(" exact") or isinstance(value, str) or not isinstance(value, (float, np.floating)):
        return text.endswith(" exact") or text == str(value)
    if text == "-":
        return not np.isfinite(value)
    number, _, error = text.rstrip(")").partition(" (")
    return near(number, value) and (not error or near(error, mcse))


def near(text, value, scale=1.0):
    """Whether a number in text is a value times `scale`, rounded to the digits shown."""
    mantissa, _, power = text.lower().partition("e")
    unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return abs(float(text) - scale * float(value)) <= 0.5 * unit * (1 + 1e-9) + 1e-12


def pairs_of(tables):
    """Return every (value, error) of a report's tables."""
    return [
        (float(value), float(error))
        for frame in tables.values()
        for column in frame.columns
        if f"{column}_mcse" in frame.columns
        for value, error in zip(frame[column], frame[f"{column}_mcse"], strict=True)
        if np.isfinite(value) and np.isfinite(error)
    ]


def wrong_in_sentences(findings, tables, derived=()):
    """Return the numbers with an error in brackets that stand in a sentence and in no table."""
    pairs, wrong = pairs_of(tables), []
    for one in findings:
        excused = set()
        for words in derived:
            number = r"(-?\d*\.?\d+%? \(\d*\.?\d+\))"
            excused |= {found.start(1) for found in re.finditer(words.replace("#", number), one.sentence)}
        for found in PAIR.finditer(one.sentence):
            value, error = found.groups()
            there = any(near(value, v, s) and near(error, e, s) for v, e in pairs for s in (1.0, 100.0))
            if not there and found.start() not in excused:
                wrong.append((found.group(), one.sentence))
    return wrong


def wrong_in_plots(ds):
    """Return what the plots of any results show of coverage and refusals that the table of cells has otherwise."""
    factors, table = cells(ds)
    wrong = []
    with to_files():
        figure = plots.draw("coverage", ds)
    axes = [*factors, "policy"]
    several = [k for k, name in enumerate(axes) if ds.sizes[name] > 1]
    names = {}
    for key in table:
        levels = [*key[:-2], key[-1]]
        names[", ".join(str(levels[k]) for k in several) or "the only cell", key[-2]] = key
    rows = [text.get_text().replace("\n", "") for text in figure.axes[0].get_yticklabels()]
    for ax in figure.axes:
        method = ax.get_title()
        drawn = [
            ("coverage", *bars[0].get_data()) for bars in ax.containers if bars and hasattr(bars, "lines")
        ]
        drawn += [(line.get_label(), *line.get_data()) for line in ax.lines if line.get_label() in REFUSALS]
        for name, x, y in drawn:
            for value, row in zip(x, y, strict=True):
                expected = table[names[rows[round(float(row))], method]][name]
                if not np.isclose(value, expected, rtol=1e-9):
                    wrong.append((rows[round(float(row))], method, name, value, expected))
    return wrong


def wrong_in_figures(item):
    """Return what the marks of a study's own figures show that is in no table and no cell, by label and value."""
    _factors, table = cells(item.results)
    known = [np.asarray(frame.select_dtypes("number"), float).ravel() for frame in item.tables.values()]
    for kind in ("value", "difference"):
        names = [p for p in item.results["policy"].values.astype(str) if estimand_kind(p) == kind]
        for name in SHOWN:
            rows = {}
            for key, found in table.items():
                if key[-1] in names:
                    known.append(np.array([found[name]]))
                    rows.setdefault(key[:-1], []).append(found[name])
            known.append(np.array([np.mean(values) for values in rows.values()]))
    numbers = np.concatenate(known)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    with to_files():
        figures = page.drawn(item.study, item.results)
    wrong = []
    for caption, figure in figures.items():
        if caption.startswith(BY_THEMSELVES.get(item.study.name, "\0")):
            continue
        for ax in figure.axes:
            for bars in ax.containers:
                line = getattr(bars, "lines", [None])[0]
                if line is None:
                    continue
                along = line.get_xdata() if bars.has_xerr and not bars.has_yerr else line.get_ydata()
                for value in np.asarray(along, float):
                    if np.isfinite(value) and not np.isclose(numbers, value, rtol=1e-9, atol=1e-12).any():
                        wrong.append((caption[:40], bars.get_label(), float(value)))
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", available())
def test_every_number_is_that_of_the_table_of_cells(smoke, name):
    """Report, plots, tables and sentences of the smoke profile."""
    report = smoke(name)
    [item] = report.items
    assert report.broken == []
    wrong, compared = wrong_in_tables(item.tables, item.results)
    assert compared > 0 and wrong == []
    assert wrong_in_page(report) == []
    assert wrong_in_sentences(item.findings, item.tables, DERIVED.get(name, ())) == []
    assert wrong_in_plots(item.results) == []
    assert wrong_in_figures(item) == []


@pytest.mark.slow
def test_a_planted_number_is_noticed_wherever_it_stands(smoke, monkeypatch):
    """A refusal counted as a miss in a table, a digit of a page, of a sentence, and a plot that pools policies."""
    report = smoke("binary_oracle")
    [item] = report.items
    title = "All measures"
    frame = item.tables[title].copy()
    some = frame["refused"].between(0.01, 0.99)
    assert some.any()
    frame["coverage"] *= 1 - frame["refused"]
    wrong, _ = wrong_in_tables({title: frame}, item.results)
    assert {row[4] for row in wrong} == {"coverage"}
    text = report.path.read_text(encoding="utf-8")
    changed = re.sub(r"<td>0\.83 \(0\.17\)</td>", "<td>0.84 (0.17)</td>", text, count=1)
    assert changed != text
    report.path.write_text(changed, encoding="utf-8")
    try:
        assert len(wrong_in_page(report)) == 1
    finally:
        report.path.write_text(text, encoding="utf-8")
    told = item.findings[-1].sentence
    assert "83% (17)" in told
    sentence = item.findings[-1]._replace(sentence=told.replace("83% (17)", "85% (17)"))
    assert len(wrong_in_sentences([sentence], item.tables)) == 1
    pooled = performance(item.results, measures=["coverage", *REFUSALS], pool=True)

    def pooling(ds, *, measures):
        found = performance(ds, measures=measures)
        whole = pooled.sel(measure=list(measures)).isel(policy=[0] * ds.sizes["policy"])
        return found.assign({v: whole[v].assign_coords(policy=ds["policy"].values) for v in found})

    monkeypatch.setattr(data, "performance", pooling)
    assert wrong_in_plots(item.results)

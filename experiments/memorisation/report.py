"""The page to point at, tables and figures."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from experiments.frame.legacy import Page, Picture
from experiments.frame.models import LABELS, count_params
from experiments.frame.run_folder import RunFolder
from experiments.frame.tables import Table, markdown, show
from experiments.frame.verdicts import Expectation, Verdict, verdicts_table, what_failed
from experiments.memorisation import plots
from experiments.memorisation.config import Config
from experiments.memorisation.interactive import interactive_page
from experiments.memorisation.results import Chosen, Traced

CLAIM = (
    "Models with similar bits per character can use their context in different ways. The page "
    "memorisation.html in the folder of this run shows it: point at a character and see which "
    "earlier ones the prediction of it depends on, in three models side by side. The numbers are "
    "gradients in these examples, a diagnostic and not a ranking."
)
DISTANCES = (1, 4, 16, 64)
NEAR_BITS, FAR, RATIO = 0.15, 16, 1.5
CAPTIONS = {
    "passage": "A held-out passage as the page shows it, pointed at the outlined character: on "
    "what the prediction of it depends. The scale is the same for all.",
    "maps": "All predictions of that passage (rows) by all characters in front (columns).",
    "reach": "Share of the gradient by distance, a mean over the second halves of all passages; "
    "right: what comes from further back than a distance.",
}
CAUSAL = Expectation(
    "1 nothing depends on what comes later", "no gradient to the character itself or on"
)
HIDDEN = Expectation(
    "2 similar scores, other uses of context",
    f"two models within {NEAR_BITS:g} bits of each other whose share of gradient from more than "
    f"{FAR} characters back differs by a factor of {RATIO:g}",
)


def report(config: Config, results: Sequence[Any], folder: RunFolder) -> Page:
    """Writes the page, rows and figures."""
    chosen = next(one for one in results if isinstance(one, Chosen))
    traced = [one for one in results if isinstance(one, Traced)]
    if not traced:
        return Page("memorisation", CLAIM, [], [], [], [])
    lines = verdicts(traced)
    tables = [
        verdicts_table("What was expected, and what was measured", lines),
        _reach_table(traced),
    ]
    folder.write_text("memorisation.html", interactive_page(chosen, traced))
    folder.write_csv("reach.csv", _reach_rows(traced))
    plots.passage(chosen, traced, folder.path("passage.png"))
    plots.maps(traced, folder.path("maps.png"))
    plots.reach(traced, folder.path("reach.png"))
    pictures = [Picture(f"{name}.png", caption) for name, caption in CAPTIONS.items()]
    folder.write_text("summary.md", "\n".join(["# memorisation\n", *map(markdown, tables)]))
    for table in tables:
        show(table)
    return Page("memorisation", CLAIM, tables, pictures, _found(traced), what_failed(lines))


def verdicts(traced: Sequence[Traced]) -> list[Verdict]:
    """Both lines."""
    late = max(float(abs(_not_before(one)).max()) for one in traced)
    return [CAUSAL.verdict(f"the largest is {late:g}", late == 0), _hidden(traced)]


def _not_before(one: Traced):
    """The strengths from the character itself on; the rest is 0."""
    return np.triu(one.connections.strength)


def _hidden(traced):
    if len(traced) < 2:
        return HIDDEN.not_run()
    pairs = [pair for pair in combinations(traced, 2) if _gap(pair) <= NEAR_BITS]
    if not pairs:
        least = min(map(_gap, combinations(traced, 2)))
        return HIDDEN.verdict(f"no two models so near, the least gap is {least:.2f} bits", False)
    ratio, names = max((_ratio(pair), _names(pair)) for pair in pairs)
    return HIDDEN.verdict(f"{names}: {ratio:.1f}", ratio >= RATIO)


def _gap(pair):
    one, other = pair
    return abs(one.connections.bits - other.connections.bits)


def _ratio(pair):
    less, more = sorted(one.beyond(FAR) for one in pair)
    return more / max(less, 1e-9)


def _names(pair):
    return " and ".join(LABELS[one.model.mixer] for one in pair)


def _reach_table(traced: Sequence[Traced]) -> Table:
    rows = [
        (
            LABELS[one.model.mixer],
            f"{count_params(one.params):,}",
            f"{one.connections.bits:.3f}",
            *(
                f"{100 * one.beyond(distance):.1f}"
                for distance in DISTANCES
                if distance < _length(one)
            ),
        )
        for one in traced
    ]
    columns = ("model", "parameters", "bits on the passages")
    columns += tuple(f"beyond {d} (%)" for d in DISTANCES if d < _length(traced[0]))
    title = (
        "Bits per character, and the share of the gradient from more than so many characters back"
    )
    return Table(title, columns, rows)


def _length(one):
    return len(one.by_distance())


def _reach_rows(traced: Sequence[Traced]) -> Iterator[dict[str, Any]]:
    for one in traced:
        for place, share in enumerate(one.by_distance(), 1):
            yield {"model": one.model.mixer, "characters_back": place, "share": float(share)}


def _found(traced: Sequence[Traced]) -> list[str]:
    return [
        f"{LABELS[one.model.mixer]}: {one.connections.bits:.2f} bits per character on the "
        f"passages; {one.beyond(FAR):.0%} of the gradient from more than {FAR} characters back."
        for one in traced
    ]

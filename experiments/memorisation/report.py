from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from experiments.frame.fitting import Training
from experiments.frame.models import count_params
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table
from experiments.frame.verdicts import Expectation, Verdict
from experiments.memorisation import figures
from experiments.memorisation.config import Config
from experiments.memorisation.figures import interactive_page
from experiments.memorisation.measure import Results, Traced

CLAIM = (
    "Models with similar bits per character can use their context in different ways. The page "
    "memorisation.html in the folder of this run shows it: point at a character and see which "
    "earlier ones the prediction of it depends on, in three models side by side. The numbers are "
    "gradients in these examples, a diagnostic and not a ranking."
)
CAPTIONS = {
    "passage": "A held-out passage as the page shows it, pointed at the outlined character: on "
    "what the prediction of it depends. The scale is the same for all.",
    "maps": "All predictions of that passage (rows) by all characters before (columns).",
    "reach": "Share of the gradient by distance, a mean over the second halves of all passages; "
    "right: what comes from further back than a distance.",
}
DISTANCES = (1, 4, 16, 64)
NEAR_BITS, FAR, RATIO = 0.15, 16, 1.5
CAUSAL = Expectation(
    "1 nothing depends on what comes later", "no gradient to the character itself or on"
)
HIDDEN = Expectation(
    "2 similar scores, other uses of context",
    f"two models within {NEAR_BITS:g} bits of each other whose share of gradient from more than "
    f"{FAR} characters back differs by a factor of {RATIO:g}",
)


def report(config: Config, results: Results) -> Report:
    traced = results.traced
    if not traced:
        return Report(CLAIM, verdicts=judged(traced))
    return Report(
        CLAIM,
        verdicts=judged(traced),
        trainings=[
            Training({"model": one.model.mixer}, [config.seed], one.fitted)
            for one in traced
            if one.fitted is not None
        ],
        pictures=Picture.drawn(figures, CAPTIONS, results),
        tables=[_reach_table(traced)],
        found=[
            f"{one.model.label}: {one.bits:.2f} bits per character on the passages; "
            f"{one.beyond(FAR):.0%} of the gradient from more than {FAR} characters back."
            for one in traced
        ],
        files={
            "memorisation.html": interactive_page(results),
            "reach.csv": [
                {"model": one.model.mixer, "characters_back": place, "share": float(share)}
                for one in traced
                for place, share in enumerate(one.by_distance(), 1)
            ],
        },
    )


def judged(traced: Sequence[Traced]) -> list[Verdict]:
    return [CAUSAL.judge(_causal, traced), HIDDEN.judge(_hidden, list(combinations(traced, 2)))]


def _causal(traced: Sequence[Traced]) -> tuple[str, Any]:
    """All strengths from the character itself on must be 0."""
    late = max(float(abs(np.triu(one.strength)).max()) for one in traced)
    return f"the largest is {late:g}", late == 0


def _hidden(pairs: Sequence[tuple[Traced, Traced]]) -> tuple[str, Any]:
    gaps = [abs(one.bits - other.bits) for one, other in pairs]
    near = [pair for pair, gap in zip(pairs, gaps, strict=True) if gap <= NEAR_BITS]
    if not near:
        return f"no two models so near, the least gap is {min(gaps):.2f} bits", False
    ratios = {}
    for pair in near:
        less, more = sorted(one.beyond(FAR) for one in pair)
        ratios[" and ".join(one.model.label for one in pair)] = more / max(less, 1e-9)
    names = max(ratios, key=lambda names: ratios[names])
    return f"{names}: {ratios[names]:.1f}", ratios[names] >= RATIO


def _reach_table(traced: Sequence[Traced]) -> Table:
    distances = [distance for distance in DISTANCES if distance < len(traced[0].by_distance())]
    rows = [
        {
            "model": one.model.label,
            "parameters": f"{count_params(one.params):,}",
            "bits on the passages": f"{one.bits:.3f}",
            **{f"beyond {d} (%)": f"{100 * one.beyond(d):.1f}" for d in distances},
        }
        for one in traced
    ]
    title = (
        "Bits per character, and the share of the gradient from more than so many characters back"
    )
    return Table.of(title, rows)

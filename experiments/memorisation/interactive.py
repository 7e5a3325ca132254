"""The page to point at: one HTML file with its data, and plain script."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.topics import ALPHABET
from experiments.frame.models import LABELS
from experiments.memorisation.results import Chosen, Traced

DECADES = 3  # from the darkest shade to none
DIGITS = 3
TEMPLATE = Path(__file__).with_name("page.html")


def interactive_page(chosen: Chosen, traced: Sequence[Traced]) -> str:
    """The whole document."""
    data = {
        "decades": DECADES,
        "passages": [{"topic": one.topic, "text": one.prompt} for one in chosen.passages],
        "models": [_model(one) for one in traced],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    before, after = TEMPLATE.read_text(encoding="utf-8").split("DATA</script>")
    return f"{before}{text}</script>{after}"


def shares_of_largest(strength: np.ndarray) -> np.ndarray:
    """A row of strengths as shares of its largest, with `DIGITS` digits; all 0 if it is."""
    largest = strength.max(initial=0)
    return np.array(
        [float(f"{value / largest:.{DIGITS}g}") if largest else 0 for value in strength]
    )


def _model(one: Traced) -> dict[str, Any]:
    found = one.connections
    return {
        "name": one.model.mixer,
        "label": LABELS[one.model.mixer],
        "passages": [_passage(found, index) for index in range(len(found.strength))],
    }


def _passage(found, index) -> dict[str, Any]:
    rows = found.strength[index]
    pairs = zip(found.likeliest[index], found.probabilities[index], strict=True)
    return {
        "bits": float(-np.log2(found.truth[index]).mean()),
        "rows": [shares_of_largest(row[:t]).tolist() for t, row in enumerate(rows)],
        "likeliest": [
            [(ALPHABET[token], _short(chance)) for token, chance in zip(*both, strict=True)]
            for both in pairs
        ],
        "truth": [_short(chance) for chance in found.truth[index]],
    }


def _short(chance) -> float:
    return float(f"{chance:.{DIGITS}g}")

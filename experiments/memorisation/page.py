"""The page to point at: one HTML file with its data, and plain script."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.topics import ALPHABET
from experiments.memorisation.measure import Results, Traced

DECADES = 3  # from the darkest shade to none
DIGITS = 3
TEMPLATE = Path(__file__).with_name("page.html")


def interactive_page(results: Results) -> str:
    data = {
        "decades": DECADES,
        "passages": [{"topic": one.topic, "text": one.prompt} for one in results.passages],
        "models": [
            {
                "name": one.model.mixer,
                "label": one.model.label,
                "passages": [_passage(one, index) for index in range(len(results.passages))],
            }
            for one in results.traced
        ],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    before, after = TEMPLATE.read_text(encoding="utf-8").split("DATA</script>")
    return f"{before}{text}</script>{after}"


def shares_of_largest(strength: np.ndarray) -> np.ndarray:
    """A row of strengths as shares of its largest, with `DIGITS` digits; all 0 if it is."""
    largest = strength.max(initial=0)
    return np.array([_short(value / largest) if largest else 0 for value in strength])


def _passage(one: Traced, index: int) -> dict[str, Any]:
    pairs = zip(one.likeliest[index], one.probabilities[index], strict=True)
    return {
        "bits": float(-np.log2(one.truth[index]).mean()),
        "rows": [shares_of_largest(row[:t]).tolist() for t, row in enumerate(one.strength[index])],
        "likeliest": [
            [(ALPHABET[token], _short(chance)) for token, chance in zip(*both, strict=True)]
            for both in pairs
        ],
        "truth": [_short(chance) for chance in one.truth[index]],
    }


def _short(share) -> float:
    return float(f"{share:.{DIGITS}g}")

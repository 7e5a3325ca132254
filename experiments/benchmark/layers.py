"""One layer, forward and a whole training step, beside other packages and two floors."""

from collections.abc import Iterator
from typing import Any

from experiments.benchmark.measured import Measured, Timing, measured
from experiments.benchmark.subjects import MODULES, load, prepare
from experiments.benchmark.work import Shape, Work

NARROW = (
    Shape(1, 256, 32, 64),
    Shape(64, 128, 64, 64),
    Shape(8, 1000, 16, 32),
    Shape(32, 100, 64, 128),
    Shape(256, 32, 64, 64),
    Shape(4, 512, 64, 128),
)
WIDE = (
    Shape(16, 256, 128, 256),
    Shape(32, 128, 128, 256),
    Shape(64, 64, 256, 512),
    Shape(128, 64, 128, 512),
)
QUICK = (Shape(1, 64, 8, 16), Shape(8, 32, 16, 32))
GRIDS = {"all": NARROW + WIDE, "narrow": NARROW, "wide": WIDE, "quick": QUICK}


def case_name(shape: Shape) -> str:
    """The name of a row."""
    return ", ".join(map(str, shape))


def measure(
    quantity: str, models: tuple[str, ...], grid: tuple[Shape, ...], timing: Timing, bar: Any
) -> Iterator[Measured]:
    """All subjects that have a model, one shape after the other; those missing are said once."""
    modules = {name: load(name) for name in MODULES}
    for name in [name for name, module in modules.items() if module is None]:
        bar.note(f"{name} is not installed and left out: pip install '.[benchmark]'")
    for model in models:
        for shape in grid:
            case = f"{quantity}, {model}, {case_name(shape)}"
            bar.stage(case)
            work = Work(model, shape, quantity)
            subjects = {
                name: prepare(module, work)
                for name, module in modules.items()
                if module is not None and model in module.MODELS
            }
            yield from measured(subjects, timing, quantity, model, case_name(shape))
            bar.advance()
            bar.finish_stage(case)

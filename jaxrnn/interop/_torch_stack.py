"""A module of torch for layers one after another; this file alone imports torch at its top."""

from typing import Any

import torch


class Stack(torch.nn.Sequential):
    """Runs modules one after another, and of recurrent ones takes the outputs of all steps."""

    def forward(self, xs: Any) -> Any:
        """The outputs `[B, T, C]` of inputs `[B, T, D]`, or of tokens `[B, T]`."""
        for module in self:
            xs = module(xs)
            if isinstance(module, torch.nn.RNNBase):
                xs, _ = xs
        return xs

"""Recurrent networks as pure functions: cells, one engine, and how it is evaluated."""

from jaxrnn.boundary import broadcast_carry as broadcast_carry
from jaxrnn.boundary import detach as detach
from jaxrnn.boundary import select_carry as select_carry
from jaxrnn.cells.elman import ElmanCarry as ElmanCarry
from jaxrnn.cells.elman import ElmanParams as ElmanParams
from jaxrnn.cells.elman import elman as elman
from jaxrnn.cells.lstm import LSTMCarry as LSTMCarry
from jaxrnn.cells.lstm import LSTMParams as LSTMParams
from jaxrnn.cells.lstm import lstm as lstm
from jaxrnn.combinators import learned_initial_carry as learned_initial_carry
from jaxrnn.combinators import simple_cell as simple_cell
from jaxrnn.evaluators.auto import auto as auto
from jaxrnn.evaluators.sequential import sequential as sequential
from jaxrnn.layers.recurrent import recurrent as recurrent
from jaxrnn.noise import recurrent_dropout as recurrent_dropout
from jaxrnn.noise import zoneout as zoneout
from jaxrnn.types import Affine as Affine
from jaxrnn.types import Cell as Cell
from jaxrnn.types import Layer as Layer
from jaxrnn.types import Rollout as Rollout
from jaxrnn.types import Split as Split
from jaxrnn.unroll import carries as carries
from jaxrnn.unroll import step as step
from jaxrnn.unroll import unroll as unroll

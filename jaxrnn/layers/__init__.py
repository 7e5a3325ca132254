"""Layers: maps from sequence to sequence with an explicit carry."""

from jaxrnn.engine.recurrent import recurrent as recurrent
from jaxrnn.layers._bidirectional import Directions as Directions
from jaxrnn.layers._bidirectional import bidirectional as bidirectional
from jaxrnn.layers._block import block as block
from jaxrnn.layers._block import classifier as classifier
from jaxrnn.layers._block import language_model as language_model
from jaxrnn.layers._dense import DenseParams as DenseParams
from jaxrnn.layers._dense import dense as dense
from jaxrnn.layers._dropout import dropout as dropout
from jaxrnn.layers._embed import EmbedParams as EmbedParams
from jaxrnn.layers._embed import embed as embed
from jaxrnn.layers._gated_mlp import GatedMLPParams as GatedMLPParams
from jaxrnn.layers._gated_mlp import gated_mlp as gated_mlp
from jaxrnn.layers._layer_norm import LayerNormParams as LayerNormParams
from jaxrnn.layers._layer_norm import layer_norm as layer_norm
from jaxrnn.layers._residual import residual as residual
from jaxrnn.layers._serial import serial as serial
from jaxrnn.layers._subsample import subsample as subsample

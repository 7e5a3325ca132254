"""Sequence mixers: convolutions, state spaces, matrix memories and attention as layers."""

from jaxrnn.mixers._causal_conv import CausalConvParams as CausalConvParams
from jaxrnn.mixers._causal_conv import causal_conv as causal_conv
from jaxrnn.mixers._gated_delta_net import GatedDeltaNetCarry as GatedDeltaNetCarry
from jaxrnn.mixers._gated_delta_net import GatedDeltaNetParams as GatedDeltaNetParams
from jaxrnn.mixers._gated_delta_net import gated_delta_net as gated_delta_net
from jaxrnn.mixers._griffin_block import GriffinBlockCarry as GriffinBlockCarry
from jaxrnn.mixers._griffin_block import GriffinBlockParams as GriffinBlockParams
from jaxrnn.mixers._griffin_block import griffin_block as griffin_block
from jaxrnn.mixers._mamba import MambaCarry as MambaCarry
from jaxrnn.mixers._mamba import MambaParams as MambaParams
from jaxrnn.mixers._mamba import mamba as mamba
from jaxrnn.mixers._mamba2 import Mamba2Carry as Mamba2Carry
from jaxrnn.mixers._mamba2 import Mamba2Params as Mamba2Params
from jaxrnn.mixers._mamba2 import mamba2 as mamba2
from jaxrnn.mixers._mlstm import MLSTMCarry as MLSTMCarry
from jaxrnn.mixers._mlstm import MLSTMParams as MLSTMParams
from jaxrnn.mixers._mlstm import mlstm as mlstm
from jaxrnn.mixers._s4.s4 import S4Carry as S4Carry
from jaxrnn.mixers._s4.s4 import S4Params as S4Params
from jaxrnn.mixers._s4.s4 import s4 as s4
from jaxrnn.mixers._self_attention import KeyValue as KeyValue
from jaxrnn.mixers._self_attention import SelfAttentionParams as SelfAttentionParams
from jaxrnn.mixers._self_attention import self_attention as self_attention
from jaxrnn.mixers._ssd import SSDParams as SSDParams
from jaxrnn.mixers._window import Window as Window

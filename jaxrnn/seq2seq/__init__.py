"""From one sequence to another: encoder and decoder, and attention between them."""

from jaxrnn.seq2seq._attention_cell import AttentionCellCarry as AttentionCellCarry
from jaxrnn.seq2seq._attention_cell import AttentionCellParams as AttentionCellParams
from jaxrnn.seq2seq._attention_cell import attention_cell as attention_cell
from jaxrnn.seq2seq._bridges import Bridge as Bridge
from jaxrnn.seq2seq._bridges import DenseBridgeParams as DenseBridgeParams
from jaxrnn.seq2seq._bridges import dense_bridge as dense_bridge
from jaxrnn.seq2seq._cross_attention import Attended as Attended
from jaxrnn.seq2seq._cross_attention import Memory as Memory
from jaxrnn.seq2seq._cross_attention import attention_weights as attention_weights
from jaxrnn.seq2seq._cross_attention import cross_attention as cross_attention
from jaxrnn.seq2seq._cross_attention import source_memory as source_memory
from jaxrnn.seq2seq._encoder_decoder import encoder_decoder as encoder_decoder
from jaxrnn.seq2seq._input_feeding import InputFeedingCarry as InputFeedingCarry
from jaxrnn.seq2seq._input_feeding import InputFeedingParams as InputFeedingParams
from jaxrnn.seq2seq._input_feeding import input_feeding as input_feeding
from jaxrnn.seq2seq._record import EncoderDecoder as EncoderDecoder
from jaxrnn.seq2seq._record import EncoderDecoderParams as EncoderDecoderParams
from jaxrnn.seq2seq._scores import AdditiveScoreParams as AdditiveScoreParams
from jaxrnn.seq2seq._scores import DotScoreParams as DotScoreParams
from jaxrnn.seq2seq._scores import Score as Score
from jaxrnn.seq2seq._scores import additive_score as additive_score
from jaxrnn.seq2seq._scores import dot_score as dot_score

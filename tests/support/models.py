"""One of every model that mixes time, small, by the name of its factory."""

import jax.numpy as jnp

import jaxrnn as jr

NUM_INPUTS = 4
"""D of every model."""

CLASSICAL = {
    "elman": lambda dtype: jr.elman(4, param_dtype=dtype),
    "lstm": lambda dtype: jr.lstm(4, param_dtype=dtype),
    "gru": lambda dtype: jr.gru(4, param_dtype=dtype),
    "mgu": lambda dtype: jr.mgu(4, param_dtype=dtype),
}
MODELS = {
    "ema": lambda dtype: jr.ema(0.7, param_dtype=dtype),
    "diagonal_rnn": lambda dtype: jr.diagonal_rnn(4, (-1, 1), selective=True, param_dtype=dtype),
    "lru": lambda dtype: jr.lru(5, 6, r_max=0.99, param_dtype=dtype),
    "s4d": lambda dtype: jr.s4d(6, param_dtype=dtype),
    "s5": lambda dtype: jr.s5(5, 8, num_blocks=2, param_dtype=dtype),
    "rg_lru": lambda dtype: jr.rg_lru(num_blocks=2, param_dtype=dtype),
    "min_gru": lambda dtype: jr.min_gru(4, param_dtype=dtype),
    "min_lstm": lambda dtype: jr.min_lstm(4, param_dtype=dtype),
    "s6": lambda dtype: jr.s6(3, dt_rank=2, param_dtype=dtype),
    "slstm": lambda dtype: jr.slstm(4, num_heads=2, param_dtype=dtype),
    "convolutional": lambda dtype: jr.recurrent(jr.s4d(6, param_dtype=dtype), jr.convolution()),
    "s4": lambda dtype: jr.s4(6, param_dtype=dtype),
    "causal_conv": lambda dtype: jr.causal_conv(3, param_dtype=dtype),
    "mamba": lambda dtype: jr.mamba(3, param_dtype=dtype),
    "mamba2": lambda dtype: jr.mamba2(
        3, head_width=4, evaluator=jr.chunkwise(7), param_dtype=dtype
    ),
    "mlstm": lambda dtype: jr.mlstm(2, 2, evaluator=jr.chunkwise(7), param_dtype=dtype),
    "gated_delta_net": lambda dtype: jr.gated_delta_net(
        2, 3, evaluator=jr.chunkwise(7), negative_eigenvalues=True, param_dtype=dtype
    ),
    "self_attention": lambda dtype: jr.self_attention(2, window=5, param_dtype=dtype),
}


def make(name, dtype=jnp.float32):
    return (CLASSICAL | MODELS)[name](dtype)

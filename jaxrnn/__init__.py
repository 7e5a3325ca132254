"""Recurrent networks as pure functions: cells, one engine, and how it is evaluated."""

import sys

from jaxrnn import (
    cells,
    crf,
    diagnostics,
    generation,
    interop,
    layers,
    losses,
    mixers,
    seq2seq,
    sequences,
    testing,
    training,
)
from jaxrnn._version import __version__ as __version__
from jaxrnn.cells import (
    Observations,
    Timed,
    conv_gru,
    conv_lstm,
    diagonal_rnn,
    elman,
    ema,
    gru,
    gru_d,
    learned_initial_carry,
    lru,
    lstm,
    mgu,
    min_gru,
    min_lstm,
    recurrent_dropout,
    rg_lru,
    s4d,
    s5,
    s6,
    simple_cell,
    slstm,
    zoneout,
)
from jaxrnn.crf import crf_init, crf_log_likelihood, crf_marginals, viterbi
from jaxrnn.diagnostics import (
    Cost,
    LayerOutputs,
    carry_jacobians,
    carry_norms,
    count_cost,
    input_sensitivity,
    jacobian_spectrum,
    last_output_sensitivity,
    layer_outputs,
    lyapunov_exponents,
    memory_horizon,
    saturation,
    spectral_radius,
    state_capacity_bits,
)
from jaxrnn.engine import serialization
from jaxrnn.engine.carry import broadcast_carry, detach, select_carry
from jaxrnn.engine.evaluators.associative import associative
from jaxrnn.engine.evaluators.auto import auto
from jaxrnn.engine.evaluators.chunked import ChunkedInfo, chunked
from jaxrnn.engine.evaluators.chunkwise import chunkwise
from jaxrnn.engine.evaluators.convolution import convolution
from jaxrnn.engine.evaluators.newton.newton import NewtonInfo, newton
from jaxrnn.engine.evaluators.sequential.sequential import sequential
from jaxrnn.engine.keys import MissingKey
from jaxrnn.engine.linear_scan import linear_scan
from jaxrnn.engine.matrix_scan import matrix_scan
from jaxrnn.engine.unroll import carries, step, unroll
from jaxrnn.factories import EvaluatorValue, model_factory
from jaxrnn.generation import (
    FreeRun,
    Generated,
    Hypotheses,
    beam_search,
    free_run,
    generate,
    impute,
    next_token,
    scheduled_sampling,
    teacher_forced,
)
from jaxrnn.layers import (
    batch_norm,
    bidirectional,
    block,
    classifier,
    concatenate,
    dense,
    dropout,
    embed,
    fold_statistics,
    gated_mlp,
    language_model,
    layer_norm,
    lift,
    recurrent,
    repeat,
    residual,
    rms_norm,
    serial,
    subsample,
    tied_embed,
)
from jaxrnn.losses import (
    binary_cross_entropy,
    cross_entropy,
    gaussian_nll,
    mean_over_sequences,
    mean_over_steps,
    squared_error,
    sum_over_steps,
)
from jaxrnn.mixers import (
    causal_conv,
    gated_delta_net,
    griffin_block,
    mamba,
    mamba2,
    mlstm,
    mlstm_block,
    s4,
    self_attention,
    slstm_block,
)
from jaxrnn.roles import GradientNorms, gradient_norms, parameter_labels
from jaxrnn.seq2seq import (
    Bridge,
    additive_score,
    attention_cell,
    attention_weights,
    cross_attention,
    dense_bridge,
    dot_score,
    encoder_decoder,
    input_feeding,
    source_memory,
)
from jaxrnn.sequences import (
    Batch,
    EntityTimeSplit,
    Packed,
    ShiftedTargets,
    StreamBatch,
    attention_valid,
    bucket_batches,
    last_valid,
    lengths_from_mask,
    mask_from_lengths,
    max_valid,
    mean_valid,
    pack,
    reset_from_done,
    reset_from_segments,
    shift_targets,
    split_by_entity_and_time,
    stream_batches,
    unpack,
)
from jaxrnn.training import TrainState, make_epoch_step, make_tbptt_step, make_train_step
from jaxrnn.types import Affine, Cell, Evaluator, Flags, Layer, Model, Rollout, Split, Steps

__all__ = [
    # Records
    "Affine",
    "Cell",
    "Evaluator",
    "Flags",
    "Layer",
    "Model",
    "Rollout",
    "Split",
    "Steps",
    "model_factory",
    # Running a model
    "unroll",
    "step",
    "carries",
    "broadcast_carry",
    "detach",
    "select_carry",
    # How a cell is evaluated
    "associative",
    "auto",
    "ChunkedInfo",
    "chunked",
    "NewtonInfo",
    "newton",
    "sequential",
    "chunkwise",
    "convolution",
    "linear_scan",
    "matrix_scan",
    # Cells
    "Observations",
    "conv_gru",
    "conv_lstm",
    "elman",
    "gru",
    "gru_d",
    "lstm",
    "mgu",
    "simple_cell",
    "slstm",
    "slstm_block",
    # Linear cells
    "Timed",
    "diagonal_rnn",
    "ema",
    "lru",
    "min_gru",
    "min_lstm",
    "rg_lru",
    "s4d",
    "s5",
    "s6",
    # From cell to cell
    "learned_initial_carry",
    "recurrent_dropout",
    "zoneout",
    # Layers
    "batch_norm",
    "bidirectional",
    "concatenate",
    "dense",
    "dropout",
    "embed",
    "fold_statistics",
    "gated_mlp",
    "layer_norm",
    "lift",
    "recurrent",
    "repeat",
    "residual",
    "rms_norm",
    "serial",
    "subsample",
    "tied_embed",
    # Recipes
    "block",
    "classifier",
    "language_model",
    # Sequence mixers
    "causal_conv",
    "gated_delta_net",
    "griffin_block",
    "mamba",
    "mamba2",
    "mlstm",
    "mlstm_block",
    "s4",
    "self_attention",
    # From one sequence to another
    "additive_score",
    "attention_cell",
    "attention_weights",
    "Bridge",
    "cross_attention",
    "dense_bridge",
    "dot_score",
    "encoder_decoder",
    "input_feeding",
    "source_memory",
    # Generation
    "FreeRun",
    "Generated",
    "Hypotheses",
    "beam_search",
    "free_run",
    "generate",
    "impute",
    "next_token",
    "scheduled_sampling",
    "teacher_forced",
    # Data
    "Batch",
    "EntityTimeSplit",
    "Packed",
    "ShiftedTargets",
    "StreamBatch",
    "attention_valid",
    "bucket_batches",
    "last_valid",
    "lengths_from_mask",
    "mask_from_lengths",
    "max_valid",
    "mean_valid",
    "pack",
    "reset_from_done",
    "reset_from_segments",
    "shift_targets",
    "split_by_entity_and_time",
    "stream_batches",
    "unpack",
    # Losses
    "binary_cross_entropy",
    "cross_entropy",
    "gaussian_nll",
    "mean_over_sequences",
    "mean_over_steps",
    "squared_error",
    "sum_over_steps",
    # Tagging
    "crf_init",
    "crf_log_likelihood",
    "crf_marginals",
    "viterbi",
    # Training
    "GradientNorms",
    "gradient_norms",
    "parameter_labels",
    "TrainState",
    "make_epoch_step",
    "make_tbptt_step",
    "make_train_step",
    # Diagnostics
    "Cost",
    "LayerOutputs",
    "carry_jacobians",
    "carry_norms",
    "count_cost",
    "input_sensitivity",
    "jacobian_spectrum",
    "last_output_sensitivity",
    "layer_outputs",
    "lyapunov_exponents",
    "memory_horizon",
    "saturation",
    "spectral_radius",
    "state_capacity_bits",
    # Packages: the records of parameters and carries live there
    "cells",
    "crf",
    "diagnostics",
    "generation",
    "interop",
    "layers",
    "losses",
    "mixers",
    "seq2seq",
    "sequences",
    "testing",
    "training",
]


def __dir__():
    return sorted(__all__)


serialization.register_records(
    {
        "jaxrnn": sys.modules[__name__],
        **{
            f"jaxrnn.{package.__name__.rpartition('.')[2]}": package
            for package in (cells, diagnostics, generation, layers, mixers, seq2seq, sequences)
        },
    },
    (MissingKey, *EvaluatorValue.__subclasses__()),
)

"""What the tests ask of XLA.

Most of a test is compilation: without the passes that only make programs fast, the tests take a
third of the time. Numbers are the same to rounding; what a program needs of memory is not.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from unittest import mock

import jax

QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
DEFAULTS = {
    "xla_backend_optimization_level": 3,
    "xla_cpu_use_fusion_emitters": True,
    "xla_cpu_parallel_codegen_split_count": 32,
}


def flags(options):
    """The options as a value of the environment variable XLA_FLAGS."""
    return " ".join(f"--{name}={value}".lower() for name, value in options.items())


def compiled_with_defaults(function, *arguments):
    """What users get, for tests that read what the compiler made or planned."""
    return jax.jit(function).lower(*arguments).compile(DEFAULTS)


def temporary_bytes(function, *arguments):
    """Memory that a compiled function needs beside its arguments and results."""
    return compiled_with_defaults(function, *arguments).memory_analysis().temp_size_in_bytes


def run_with_defaults(function, *arguments):
    """The result of a function of a module in a process of its own, compiled as users do.

    Here tanh in float32 is not 1 beyond 9, for one.
    """
    spawn = multiprocessing.get_context("spawn")
    with mock.patch.dict(os.environ, XLA_FLAGS=""), ProcessPoolExecutor(1, spawn) as process:
        return process.submit(function, *arguments).result()

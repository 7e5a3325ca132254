"""What a recurrence does with its past: norms, sensitivities, spectra, saturation, and its cost.

Most diagnostics measure a run: they take these arguments of `unroll`, check them as `unroll` does
and raise what it raises.

    model: the cell or layer to run. A diagnostic of the carry raises ValueError for a layer that
        is not causal, since that has no carry between steps.
    params: its parameters.
    xs: inputs, a tree of arrays `[..., T, D]`.
    carry: the carry before the first step; None is the initial carry.
    mask: `[..., T]`, True = real. None: all steps are real.
    reset: `[..., T]`, True = x_t starts a new sequence. None: no step does.
    time_major: whether xs, mask, reset and a result with a time axis are time first.
    key: randomness. None runs the deterministic model, and so does a diagnostic without it.

Each diagnostic says what masked steps and resets mean for it.
"""

from jaxrnn.diagnostics._cost import Cost as Cost
from jaxrnn.diagnostics._cost import count_cost as count_cost
from jaxrnn.diagnostics._cost import state_capacity_bits as state_capacity_bits
from jaxrnn.diagnostics._fixed_points import FixedPoints as FixedPoints
from jaxrnn.diagnostics._fixed_points import fixed_points as fixed_points
from jaxrnn.diagnostics._jacobians import carry_jacobians as carry_jacobians
from jaxrnn.diagnostics._jacobians import spectral_radius as spectral_radius
from jaxrnn.diagnostics._layer_outputs import LayerOutputs as LayerOutputs
from jaxrnn.diagnostics._layer_outputs import layer_outputs as layer_outputs
from jaxrnn.diagnostics._lyapunov import lyapunov_exponents as lyapunov_exponents
from jaxrnn.diagnostics._norms import carry_norms as carry_norms
from jaxrnn.diagnostics._saturation import saturation as saturation
from jaxrnn.diagnostics._sensitivity import input_sensitivity as input_sensitivity
from jaxrnn.diagnostics._sensitivity import last_output_sensitivity as last_output_sensitivity
from jaxrnn.diagnostics._sensitivity import memory_horizon as memory_horizon
from jaxrnn.diagnostics._spectrum import jacobian_spectrum as jacobian_spectrum
from jaxrnn.roles import GradientNorms as GradientNorms
from jaxrnn.roles import gradient_norms as gradient_norms

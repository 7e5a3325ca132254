"""What a recurrence does with its past: norms, sensitivities, spectra, saturation, and its cost."""

from jaxrnn.diagnostics._cost import Cost as Cost
from jaxrnn.diagnostics._cost import count_cost as count_cost
from jaxrnn.diagnostics._cost import state_capacity_bits as state_capacity_bits
from jaxrnn.diagnostics._jacobians import carry_jacobians as carry_jacobians
from jaxrnn.diagnostics._jacobians import spectral_radius as spectral_radius
from jaxrnn.diagnostics._lyapunov import lyapunov_exponents as lyapunov_exponents
from jaxrnn.diagnostics._norms import carry_norms as carry_norms
from jaxrnn.diagnostics._saturation import saturation as saturation
from jaxrnn.diagnostics._sensitivity import input_sensitivity as input_sensitivity
from jaxrnn.diagnostics._sensitivity import last_output_sensitivity as last_output_sensitivity
from jaxrnn.diagnostics._sensitivity import memory_horizon as memory_horizon
from jaxrnn.diagnostics._spectrum import jacobian_spectrum as jacobian_spectrum
from jaxrnn.roles import GradientNorms as GradientNorms
from jaxrnn.roles import gradient_norms as gradient_norms

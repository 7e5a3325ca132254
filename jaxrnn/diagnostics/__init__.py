"""What a recurrence does with its past: norms, sensitivities, spectra, saturation, and its cost."""

from jaxrnn.diagnostics.cost import Cost as Cost
from jaxrnn.diagnostics.cost import cost as cost
from jaxrnn.diagnostics.cost import state_capacity_bits as state_capacity_bits
from jaxrnn.diagnostics.jacobians import carry_jacobians as carry_jacobians
from jaxrnn.diagnostics.jacobians import spectral_radius as spectral_radius
from jaxrnn.diagnostics.lyapunov import lyapunov_exponents as lyapunov_exponents
from jaxrnn.diagnostics.norms import carry_norms as carry_norms
from jaxrnn.diagnostics.saturation import saturation as saturation
from jaxrnn.diagnostics.sensitivity import input_sensitivity as input_sensitivity
from jaxrnn.diagnostics.sensitivity import last_output_sensitivity as last_output_sensitivity
from jaxrnn.diagnostics.sensitivity import memory_horizon as memory_horizon
from jaxrnn.diagnostics.spectrum import jacobian_spectrum as jacobian_spectrum
from jaxrnn.labels import GradientNorms as GradientNorms
from jaxrnn.labels import gradient_norms as gradient_norms

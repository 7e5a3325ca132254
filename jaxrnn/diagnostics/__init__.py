"""What a recurrence does with its past: norms, sensitivities, spectra, saturation, and its cost."""

from jaxrnn.diagnostics.jacobians import carry_jacobians as carry_jacobians
from jaxrnn.diagnostics.jacobians import spectral_radius as spectral_radius
from jaxrnn.diagnostics.lyapunov import lyapunov_exponents as lyapunov_exponents
from jaxrnn.diagnostics.spectrum import jacobian_spectrum as jacobian_spectrum

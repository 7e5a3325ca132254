"""Gradients of a stream, carried forwards in time with the model."""

from jaxrnn.online._online_gradient import OnlineGradient as OnlineGradient
from jaxrnn.online._online_gradient import OnlineStep as OnlineStep
from jaxrnn.online._online_gradient import online_gradient as online_gradient

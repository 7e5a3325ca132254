"""Generation: models that read the true sequence, their own outputs, or a mixture of both."""

from jaxrnn.generation._beam_search import Hypotheses as Hypotheses
from jaxrnn.generation._beam_search import beam_search as beam_search
from jaxrnn.generation._decoding import FreeRun as FreeRun
from jaxrnn.generation._decoding import Generated as Generated
from jaxrnn.generation._decoding import free_run as free_run
from jaxrnn.generation._decoding import generate as generate
from jaxrnn.generation._sampling import next_token as next_token
from jaxrnn.generation._teacher_forcing import impute as impute
from jaxrnn.generation._teacher_forcing import scheduled_sampling as scheduled_sampling
from jaxrnn.generation._teacher_forcing import teacher_forced as teacher_forced

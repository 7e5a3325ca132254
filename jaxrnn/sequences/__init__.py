"""Sequence data: masks, resets, packing, batches, targets, splits and pooling."""

from jaxrnn.sequences._batching import Batch as Batch
from jaxrnn.sequences._batching import StreamBatch as StreamBatch
from jaxrnn.sequences._batching import bucket_batches as bucket_batches
from jaxrnn.sequences._batching import stream_batches as stream_batches
from jaxrnn.sequences._masks import lengths_from_mask as lengths_from_mask
from jaxrnn.sequences._masks import mask_from_lengths as mask_from_lengths
from jaxrnn.sequences._masks import reset_from_done as reset_from_done
from jaxrnn.sequences._masks import reset_from_segments as reset_from_segments
from jaxrnn.sequences._packing import Packed as Packed
from jaxrnn.sequences._packing import pack as pack
from jaxrnn.sequences._packing import unpack as unpack
from jaxrnn.sequences._pooling import attention_valid as attention_valid
from jaxrnn.sequences._pooling import last_valid as last_valid
from jaxrnn.sequences._pooling import max_valid as max_valid
from jaxrnn.sequences._pooling import mean_valid as mean_valid
from jaxrnn.sequences._splits import EntityTimeSplit as EntityTimeSplit
from jaxrnn.sequences._splits import split_by_entity_and_time as split_by_entity_and_time
from jaxrnn.sequences._targets import ShiftedTargets as ShiftedTargets
from jaxrnn.sequences._targets import shift_targets as shift_targets

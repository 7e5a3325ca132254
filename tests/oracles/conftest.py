import os

# Keras reads it once, when it is imported.
os.environ["KERAS_BACKEND"] = "jax"

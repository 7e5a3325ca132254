"""Networks that are published inside Python packages, read by `jaxrnn.interop` and run."""

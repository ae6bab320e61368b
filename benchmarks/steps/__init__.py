"""The training steps of the benchmarks, by family."""

"""The performance suite: training steps, the compiler's side (build) and the GPU machine's side (measure)."""

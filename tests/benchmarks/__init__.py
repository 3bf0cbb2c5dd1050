"""Side by side with a peer in one run, the median of interleaved runs; ratios are what counts."""

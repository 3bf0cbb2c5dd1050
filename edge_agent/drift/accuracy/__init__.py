"""Estimated accuracy (estimated loss, in a regression) without labels, with an interval, refused where it cannot hold.

``calibrate.calibrate_accuracy(reference, batch_size=..., rng=...) -> AccuracyParams`` at the bundle's build;
``monitor.step(params, state, batch) -> (state, Finding)`` on the gateway; ``monitor.latest(params, state)`` is the
:class:`AccuracyEstimate` of the last full window.
"""

"""The default monitor of labelled samples, ``loss-level``: a sequential test that the losses' level has risen.

``table`` says how much each loss speaks for a rise, ``mixture`` adds that up sample by sample, ``loss_level`` is the
monitor (its constants are in ``params``, what it remembers in ``state``), and ``calibration`` fits it to a reference
and finds the threshold of a promised false-alarm rate.
"""

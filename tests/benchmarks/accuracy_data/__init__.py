"""Windows whose accuracy is known: shifted by construction, as streams went on, and with sensors tampered with."""

"""Where samples and labels come from: a file a protocol."""

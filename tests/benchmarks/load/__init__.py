"""A fleet of many lightweight gateways, for measuring what a bridge and a broker bear."""

"""Which gateways drifted alike: selectors, statistics, clustering, membership. Pure."""

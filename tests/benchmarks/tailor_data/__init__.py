"""Digits as tasks: a backbone of one domain, and the domains that it is tailored to."""

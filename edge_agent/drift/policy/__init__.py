"""One verdict from all monitors: none, warning or alarm, and when a flag is raised.

``verdict`` judges, by the transitions in ``table``; ``labels`` says what labels are good for; ``severity`` how bad it
is, and what kind of shift; ``season`` holds seasonal baselines; ``catalogue`` makes the monitors that a bundle names.
"""

"""Flower's Grid and strategies over the fleet. The only importer of flwr."""

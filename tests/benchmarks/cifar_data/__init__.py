"""The published experiment on CIFAR-10: images, net, clients, an in-memory Grid, what is kept."""

"""Task blocks on a frozen backbone: NetTailor's proxies, a head for each task, and their pruning."""

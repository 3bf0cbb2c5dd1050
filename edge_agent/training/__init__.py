"""Local rounds in a child process: jobs, the worker, and the supervisor that owns it."""

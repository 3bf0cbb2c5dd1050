"""The agent-loop benchmark's folders and its processes."""

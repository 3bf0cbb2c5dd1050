"""What bad links, herds, doubles and wrong clocks do; docs/links.md states it."""

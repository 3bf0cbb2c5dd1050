"""The report's pictures: facts in, SVG text out; pure."""

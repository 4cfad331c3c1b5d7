"""lowkey on Ray Serve: docs/scale.md."""

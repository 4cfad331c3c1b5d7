"""Trains the demo model, and adapts checkpoints to lowkey's attention mechanisms."""

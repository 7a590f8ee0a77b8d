"""Model cards: the template that converted models get, and the cards of published checkpoints."""

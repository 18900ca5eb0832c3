"""Token sequences: laws with exact log-probabilities, sampling, and teacher forcing that fails.

Rule of this package: it imports nothing of the project.
"""

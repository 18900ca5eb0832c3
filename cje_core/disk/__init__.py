"""Writing to disk: files that are whole or absent.

Rule of this package: it imports nothing of the project.
"""

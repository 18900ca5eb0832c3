"""How much data an answer takes: power, variance components of a pilot, allocation, a plan tried out.

Rule of this package: it imports all above it, estimators too.
"""

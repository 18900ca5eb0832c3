"""Peers in a study: their public calls, in the interpreters that have them (`studies.engine.running.interpreters`).

Rule of this package: what a peer is given and asked (`calls`), how its answers become rows of an outcome (`match`), and
how methods are compared (`verdict`).
"""

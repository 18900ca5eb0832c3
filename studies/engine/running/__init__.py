"""How a run goes: workers, the directory it writes, shards and their merge, precision asked for, replays.

Rule of this package: what a run decides on the way is a function of the replicates that were asked for, never of which
blocks happen to be there: a resumed, sharded or distributed run ends with the bits of an uninterrupted one.
"""

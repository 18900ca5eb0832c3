"""What may be reported: gates, refusals, the value that stands first, advice, the reporting ledger.

Rule of this package: it imports what measures (`data` to `transport`); no estimator is known here.
"""

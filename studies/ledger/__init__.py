"""Statements on trial: what a claim is, how worlds that break it are looked for, and how verdicts are shown.

claim
    the contract: `studies.ledger.claim.Claim`, what it is decided on, and what its verdict rests on
worlds
    statements about every world of a family, decided by random search and an optimiser
judged, rewarded
    worlds with a judge, for claims of several files
own
    claims that decide by themselves: where their counterexample comes from, and its confirmation
trial
    the ledger: claims decided one after the other, with seconds and errors
shown
    the ledger as text, JSON and a document; page, the same as a page that can be filtered

Rule of this package: it knows no claim; `studies.claims` holds them and imports it.
"""

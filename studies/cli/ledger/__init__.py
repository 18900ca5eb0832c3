"""``cje-lab claims``: the ledger decided, printed and written.

Rule of this package: it joins the claims to the ledger; nothing else imports it but the application.
"""

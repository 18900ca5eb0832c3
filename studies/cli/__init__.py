"""The command line: what is asked and what is printed.

Rule of this package: it imports everything; nothing imports it but the tests.
"""

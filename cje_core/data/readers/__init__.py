"""Readers of other tools' files; each module is one, and the directory is the registry.

A reader has ``TITLE``, ``knows(head)``, whether the first bytes are of its tool, and ``items(paths, asked)``, all
responses with every score by its name. Adding a file adds the format to ``cje-lab analyze`` and ``cje-lab doctor``.

Rule of this package: a reader knows one tool's files and `cje_core.data.intake`, and no other reader.
"""

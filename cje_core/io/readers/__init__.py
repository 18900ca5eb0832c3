"""Readers of other tools' files; each module is one, and the directory is the registry.

A reader has ``TITLE``, ``ROLES`` (what becomes policy, prompt, draw and scores, and what is left out),
``knows(file)``, whether the first record is of its tool, and ``read(files, asked)``, all responses with every grade
by its name. Adding a file adds the format to ``cje-lab analyze`` and ``cje-lab doctor``.

Rule of this package: a reader knows one tool's files and `cje_core.io.intake`, and no other reader.
"""

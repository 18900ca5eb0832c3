"""The paper's logging schema ("Columns required"): tables in its columns, and what is written for others to read.

columns
    tables in JSONL or Parquet, whose rows know where they stand
logs
    logs and teacher-forcing caches as logged responses of evaluation data
redacted
    salted ids

Rule of this package: as `cje_core.data`, of which it imports the errors and the checks of fields alone.
"""

"""Tools without physics: optional imports, whole files, progress, sorting, tables, threads, axes."""

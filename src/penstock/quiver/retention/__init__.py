"""Admission and retention: what may come in, what is removed, and the size limit that instances share."""

"""File formats, sources and splits of datasets."""

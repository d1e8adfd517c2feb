"""Speed, measured side by side in one run: C4A, the physical floor, and call4agents from PyPI. Ratios count, not times."""

"""Files: atomic writing, archives of arrays, and safe opening of netCDF files."""

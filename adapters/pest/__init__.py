"""Files of PEST: templates, instructions and control files."""

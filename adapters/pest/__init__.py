"""PEST's files: templates, instructions, and a whole control file as a model."""

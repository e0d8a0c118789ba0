"""The posterior anywhere: on lines, maps and volumes, from a posterior file alone."""

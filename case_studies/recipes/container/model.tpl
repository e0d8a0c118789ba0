{thickness:.6f} {velocity[soil]:.4f} {velocity[rock]:.4f}

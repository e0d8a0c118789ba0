> -{contrast:.6f}
-{half_width[top]:.6f} 0
{half_width[top]:.6f} 0
{half_width[floor]:.6f} {thickness:.6f}
-{half_width[floor]:.6f} {thickness:.6f}

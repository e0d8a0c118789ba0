# hydraulic conductivity at the nodes in m/d, from west to east
{conductivity[*]:.10g}

# layers, then for each: depth of its base (m), velocity (m s-1)
4
{depth[1]} {velocity[1]}
{depth[2]} {velocity[2]}
{depth[3]} {velocity[3]}
{depth[4]} {velocity[4]}

# resistivity of the upper and of the lower layer (ohm m), thickness of the upper one (m)
{resistivity[1]} {resistivity[2]} {thickness}

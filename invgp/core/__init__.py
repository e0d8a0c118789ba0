"""SAVIGP with the array API standard: functions of arrays, which run on the device of their arguments."""

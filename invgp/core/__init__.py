"""SAVIGP on the array API: arrays in, arrays out, on the device where the arrays live."""

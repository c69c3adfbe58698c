package spec

// Size is a number of bytes. In a file or a flag it is a number with a unit: 512MiB, 2GiB, 1024.
type Size uint64

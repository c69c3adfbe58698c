package spec

//go:generate go run ./gen . ../../docs/reference

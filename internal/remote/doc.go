// Package remote runs one of nearmetal's programs on another host, over the user's own ssh. It needs no daemon there
// and asks for no password. One connection carries the program, if the host does not have it yet, and then its standard
// input and output.
package remote

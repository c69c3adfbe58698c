// Package remote runs a program of ours on another host, over the user's own ssh. It needs no daemon there and asks
// for no password. One connection carries the program, if it is not there yet, and then its standard input and output.
package remote

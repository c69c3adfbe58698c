// Package channel multiplexes streams over one byte carrier: the virtio-serial port of a VM, or the control socket of
// a cluster. docs/channel.md specifies the protocol. All data from the other side is treated as hostile: it can end
// its own carrier, and nothing else.
package channel

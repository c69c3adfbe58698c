// Package channel multiplexes streams over one byte carrier: the virtio-serial
// port of a VM, or the control socket of a cluster. docs/channel.md is the
// protocol. Whatever the other side sends is taken as hostile: it can end its
// own carrier, and nothing else.
package channel

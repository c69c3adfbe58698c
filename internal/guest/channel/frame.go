package channel

import (
	"encoding/binary"
	"fmt"
)

// Version of the protocol. A side that receives another version ends the carrier.
const Version = 1

const (
	// HeaderSize of a frame in bytes.
	HeaderSize = 12
	// MaxPayload of a frame in bytes.
	MaxPayload = 64 << 10
	// MaxHeader is the maximum size of the encoded kind and header of a stream in bytes.
	MaxHeader = 1 << 20
	// MaxMessage is the maximum size of a message (a frame on LaneMessage) in bytes.
	MaxMessage = 2048
	// maxText is the maximum size of the text of a RESET in bytes.
	maxText = 1024
	// maxHello is the maximum size of a HELLO in bytes.
	maxHello = 4096

	magic = 0x4e
)

// Lanes of a stream. Each lane has its own credit and end in each direction.
const (
	LaneData    = 0 // bytes: standard input one way, standard output the other
	LaneError   = 1 // bytes: standard error
	LaneMessage = 2 // Fields, one message per frame
	lanes       = 3
)

var (
	// initialCredit is the number of bytes that a side may send on a lane before it is granted any.
	initialCredit = [lanes]int{64 << 10, 64 << 10, 4 << 10}
	// maxCredit is the maximum number of bytes that a side may have been granted and not used.
	maxCredit = [lanes]int{256 << 10, 256 << 10, 4 << 10}
)

// FrameType is the purpose of a frame.
type FrameType uint8

// The types of frames. HELLO, PING and PONG are on stream 0; a RESET there ends the carrier.
const (
	Hello FrameType = 1 + iota
	Ping
	Pong
	Open
	Data
	Credit
	EOF
	Close
	Reset
)

func (t FrameType) String() string {
	names := [...]string{"0", "HELLO", "PING", "PONG", "OPEN", "DATA", "CREDIT", "EOF", "CLOSE", "RESET"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprint(uint8(t))
}

// FrameHeader is the fixed part of a frame.
type FrameHeader struct {
	Type   FrameType
	Lane   uint8 // for OPEN: 1 if another OPEN frame continues the header
	Stream uint32
	Length int // of the payload, in bytes
}

// AppendFrame appends a whole frame to b. The payload must not exceed MaxPayload.
func AppendFrame(b []byte, t FrameType, lane uint8, stream uint32, payload []byte) []byte {
	b = append(b, magic, Version, byte(t), lane)
	b = binary.LittleEndian.AppendUint32(b, stream)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// DecodeHeader decodes and checks the HeaderSize bytes at the start of a frame. It rejects all faults that can be
// detected without a carrier's state.
func DecodeHeader(b []byte) (FrameHeader, error) {
	if len(b) < HeaderSize {
		return FrameHeader{}, protocolError("a frame's header of %d bytes, not %d", len(b), HeaderSize)
	}
	if b[0] != magic {
		return FrameHeader{}, protocolError("bytes that are not a frame (0x%02x)", b[0])
	}
	if b[1] != Version {
		return FrameHeader{}, protocolError("version %d of the protocol; this side speaks version %d", b[1], Version)
	}
	h := FrameHeader{Type: FrameType(b[2]), Lane: b[3], Stream: binary.LittleEndian.Uint32(b[4:])}
	n := binary.LittleEndian.Uint32(b[8:])
	if n > MaxPayload {
		return FrameHeader{}, protocolError("a payload of %d bytes", n)
	}
	h.Length = int(n)

	least, most := 0, 0 // bounds of Length
	onStream0, onStreams := false, true
	topLane := uint8(0)
	switch h.Type {
	case Hello:
		most, onStream0, onStreams = maxHello, true, false
	case Ping, Pong:
		least, most, onStream0, onStreams = 8, 8, true, false
	case Open:
		least, most, topLane = 1, MaxPayload, 1
	case Data:
		least, most, topLane = 1, MaxPayload, lanes-1
		if h.Lane == LaneMessage {
			most = MaxMessage
		}
	case Credit:
		least, most, topLane = 4, 4, lanes-1
	case EOF:
		topLane = lanes - 1
	case Close:
	case Reset:
		most, onStream0 = maxText, true
	default:
		return FrameHeader{}, protocolError("a frame of unknown type %d", b[2])
	}
	if h.Lane > topLane {
		return FrameHeader{}, protocolError("%s on lane %d", h.Type, h.Lane)
	}
	if h.Length < least || h.Length > most {
		return FrameHeader{}, protocolError("%s of %d bytes", h.Type, h.Length)
	}
	if h.Stream == 0 && !onStream0 || h.Stream != 0 && !onStreams {
		return FrameHeader{}, protocolError("%s on stream %d", h.Type, h.Stream)
	}
	return h, nil
}

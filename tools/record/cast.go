package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// cast is a recording of a terminal: asciicast, version 2.
type cast struct {
	header header
	events []event
}

// header is the first line of a cast.
type header struct {
	Version int     `json:"version"`
	Width   int     `json:"width"`
	Height  int     `json:"height"`
	Title   string  `json:"title"`
	Idle    float64 `json:"idle_time_limit"` // longest pause of a player, in s
}

// event is a line of a cast: output ("o"), or a marker ("m") with the command that begins there.
type event struct {
	at   float64 // s since the beginning
	kind string
	data string
}

// encode returns the file.
func (c *cast) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(c.header); err != nil {
		return nil, err
	}
	for _, v := range c.events {
		if err := e.Encode([]any{math.Round(v.at*1000) / 1000, v.kind, v.data}); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// decode reads a file that encode has written.
func decode(text []byte) (*cast, error) {
	c := &cast{}
	sc := bufio.NewScanner(bytes.NewReader(text))
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		if n == 1 {
			if err := json.Unmarshal(sc.Bytes(), &c.header); err != nil {
				return nil, fmt.Errorf("line 1: %w", err)
			}
			continue
		}
		var v event
		if err := json.Unmarshal(sc.Bytes(), &[]any{&v.at, &v.kind, &v.data}); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		c.events = append(c.events, v)
	}
	return c, sc.Err()
}

// commands returns the commands of the markers.
func (c *cast) commands() []string {
	var list []string
	for _, v := range c.events {
		if v.kind == "m" {
			list = append(list, v.data)
		}
	}
	return list
}

// commandsOf returns the commands of the first block of a section of a page: its lines that begin with a prompt.
func commandsOf(page, section string) ([]string, error) {
	_, rest, ok := strings.Cut(page, "\n"+section+"\n")
	if ok {
		_, rest, ok = strings.Cut(rest, "\n```\n")
	}
	block, _, closed := strings.Cut(rest, "\n```\n")
	if !ok || !closed {
		return nil, fmt.Errorf("no section %q with a block of commands", section)
	}
	var list []string
	for _, line := range strings.Split(block, "\n") {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			return nil, fmt.Errorf("%q does not begin with a prompt", line)
		}
		command, _, _ = strings.Cut(command, "  #")
		list = append(list, strings.TrimSpace(command))
	}
	return list, nil
}

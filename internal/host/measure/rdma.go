package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/topology"
)

// rdmaTimeout bounds the test of one device.
const rdmaTimeout = 10 * time.Second

// measureRDMA has perftest's ib_send_lat send 8 bytes from each device to itself.
func measureRDMA(ctx context.Context, o Options, _ []*topology.CPU, r *Result) error {
	for i, dev := range o.RDMA {
		if ctx.Err() != nil {
			return nil
		}
		o.Detail("RDMA device " + dev)
		x := RDMA{Device: dev}
		us, err := sendLatency(ctx, dev, 18900+i)
		if x.Us = us; err != nil {
			x.Error = err.Error()
		}
		r.RDMA = append(r.RDMA, x)
	}
	return nil
}

func sendLatency(ctx context.Context, dev string, port int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, rdmaTimeout)
	defer cancel()
	args := []string{"-d", dev, "-s", "8", "-n", "1000", "-F", "-p", strconv.Itoa(port)}
	server := exec.CommandContext(ctx, "ib_send_lat", args...)
	if err := server.Start(); errors.Is(err, exec.ErrNotFound) {
		return 0, errors.New("ib_send_lat is not installed (package perftest)")
	} else if err != nil {
		return 0, err
	}
	defer server.Wait()
	defer server.Process.Kill()
	var last error
	// The server does not report when it listens, so the client retries until it does.
	for ctx.Err() == nil {
		var out bytes.Buffer
		client := exec.CommandContext(ctx, "ib_send_lat", append(args, "localhost")...)
		client.Stdout, client.Stderr = &out, &out
		err := client.Run()
		if us, ok := parseSendLat(out.String()); ok {
			return us, nil
		}
		if last = err; !strings.Contains(out.String(), "Couldn't connect") {
			return 0, fmt.Errorf("ib_send_lat: %v", err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return 0, fmt.Errorf("ib_send_lat: %v", last)
}

// parseSendLat parses perftest's table: a line of numbers, bytes, iterations, t_min, t_max, t_typical in µs.
func parseSendLat(s string) (us float64, ok bool) {
	for _, line := range strings.Split(s, "\n") {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] != "8" {
			continue
		}
		us, err := strconv.ParseFloat(f[4], 64)
		if err == nil && us > 0 && us < 1e6 {
			return us, true
		}
	}
	return 0, false
}

package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	retryMost  = 6 // attempts of one call
	retryPause = 500 * time.Millisecond
	// retryLongest bounds one wait, even if Retry-After is longer.
	retryLongest = 20 * time.Second
	answerMost   = 32 << 20 // bytes of an answer
)

// retry repeats calls that a cloud could not serve temporarily. After 429 and 503 nothing was done, so all calls are
// repeated; after other server errors and broken connections only idempotent ones.
type retry struct {
	next  http.RoundTripper
	pause time.Duration
}

// RoundTrip sends a call, up to retryMost times.
func (r *retry) RoundTrip(q *http.Request) (*http.Response, error) {
	same := q.Method == http.MethodGet || q.Method == http.MethodHead || q.Method == http.MethodDelete
	for n := 1; ; n++ {
		one := q
		if n > 1 && q.Body != nil {
			if q.GetBody == nil {
				return nil, errors.New("a call that cannot be repeated")
			}
			body, err := q.GetBody()
			if err != nil {
				return nil, err
			}
			one = q.Clone(q.Context())
			one.Body = body
		}
		a, err := r.try(one)
		again := err != nil && same || err == nil && (a.StatusCode == http.StatusTooManyRequests || a.StatusCode == http.StatusServiceUnavailable || a.StatusCode >= 500 && same)
		if !again || n == retryMost || q.Context().Err() != nil {
			return a, err
		}
		wait := r.pause << (n - 1)
		if err == nil {
			if s, bad := strconv.Atoi(a.Header.Get("Retry-After")); bad == nil && s >= 0 {
				wait = time.Duration(min(s, 3600)) * time.Second
			}
			io.Copy(io.Discard, io.LimitReader(a.Body, 1<<16))
			a.Body.Close()
		}
		select {
		case <-q.Context().Done():
			return nil, context.Cause(q.Context())
		case <-time.After(min(wait, retryLongest)):
		}
	}
}

// try sends a call once, and bounds its duration and the size of its answer.
func (r *retry) try(q *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(q.Context(), callTime, fmt.Errorf("no answer within %v", callTime))
	a, err := r.next.RoundTrip(q.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel()
		return nil, err
	}
	a.Body = &bounded{io.LimitReader(a.Body, answerMost), a.Body, cancel}
	return a, nil
}

// bounded is an answer's body; closing it ends the call.
type bounded struct {
	io.Reader
	body   io.Closer
	cancel context.CancelFunc
}

func (b *bounded) Close() error {
	defer b.cancel()
	return b.body.Close()
}

// said returns the message in the body of an error, which each of OpenStack's services formats differently.
func said(body []byte) string {
	var m map[string]json.RawMessage
	if json.Unmarshal(body, &m) == nil {
		for _, v := range m {
			var e struct {
				Message string `json:"message"`
			}
			if json.Unmarshal(v, &e) == nil && e.Message != "" {
				return oneLine(errors.New(e.Message))
			}
		}
	}
	text := strings.TrimSpace(string(body))
	if text == "" || strings.HasPrefix(text, "<") {
		return "without a word that says why"
	}
	return oneLine(errors.New(text))
}

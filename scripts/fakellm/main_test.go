package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestFirstLineIsTheURL(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error)
	go func() {
		ended <- run(ctx, []string{"--listen", "127.0.0.1:0", "--model", "tiny", "--latency", "1ms", "--spread", "0.5"},
			strings.NewReader(""), in, io.Discard)
	}()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("first line %q, %v", url, err)
	}
	resp, err := http.Get(strings.TrimSpace(url) + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), `"id":"tiny"`) {
		t.Errorf("models: %s, %v", body, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("after the signal: %v", err)
	}
}

func TestBadCommandLinesAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--spread", "3"}, {"--latency", "x"}, {"--nonsense"}, {"extra"},
		{"--listen", "nowhere:x"}, {"--restart", "-1s"}} {
		if err := run(t.Context(), args, strings.NewReader(""), io.Discard, io.Discard); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

func TestAttachedServerEndsWithItsInput(t *testing.T) {
	t.Parallel()
	stdin, starter := io.Pipe()
	out, stdout := io.Pipe()
	ended := make(chan error)
	go func() { ended <- run(t.Context(), []string{"--attached"}, stdin, stdout, io.Discard) }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := starter.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

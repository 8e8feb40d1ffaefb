package onlinewire_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rollout/shared/fault"
	"rollout/shared/onlinewire"
)

// read reads a body of unknown length, with no time to wait for room.
func read(b *onlinewire.Bodies, r io.Reader) ([]byte, func(), error) {
	q := httptest.NewRequest(http.MethodPost, "/", r)
	q.ContentLength = -1
	return b.Read(httptest.NewRecorder(), q, onlinewire.MaxBody, time.Millisecond)
}

// A body whose length is not known takes the most at first, and then what it needs.
func TestBodiesOfUnknownLengthKeepWhatTheyNeed(t *testing.T) {
	t.Parallel()
	b := onlinewire.NewBodies()
	for range 4 { // of which two take all
		if body, _, err := read(b, strings.NewReader("{}")); err != nil || string(body) != "{}" {
			t.Fatalf("the body is %q, %v", body, err)
		}
	}
}

// A body of unknown length takes no more room than it may need.
func TestShortBodiesShareTheRoom(t *testing.T) {
	t.Parallel()
	b := onlinewire.NewBodies()
	const most = onlinewire.MaxBody / 8
	for n := range 16 {
		r, w := io.Pipe()
		defer w.Close()
		q := httptest.NewRequest(http.MethodPost, "/", r)
		q.ContentLength = -1
		ended := make(chan error, 1)
		go func() {
			_, _, err := b.Read(httptest.NewRecorder(), q, most, time.Millisecond)
			ended <- err
			r.Close() // ends the write below
		}()
		if _, err := io.WriteString(w, "{"); err != nil { // it has been read
			t.Fatalf("body %d: %v", n, <-ended)
		}
	}
	q := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", most+1)))
	q.ContentLength = -1
	if _, _, err := onlinewire.NewBodies().Read(httptest.NewRecorder(), q, most, time.Millisecond); !fault.Is(err,
		fault.Exhausted) {
		t.Errorf("a body that is too long gets %v", err)
	}
}

func TestBodyWithoutRoomIsRefused(t *testing.T) {
	t.Parallel()
	b := onlinewire.NewBodies()
	ended := make(chan error, 2)
	var clients []*io.PipeWriter
	for range 2 {
		r, w := io.Pipe()
		clients = append(clients, w)
		go func() {
			_, release, err := read(b, r)
			if err == nil {
				release()
			}
			ended <- err
		}()
		if _, err := io.WriteString(w, "{"); err != nil { // it has been read
			t.Fatal(err)
		}
	}
	if _, _, err := read(b, strings.NewReader("{}")); !fault.Is(err, fault.Throttled) {
		t.Errorf("a third one gets %v", err)
	}
	for _, w := range clients {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	if _, release, err := read(b, strings.NewReader("{}")); err != nil {
		t.Errorf("after their end it gets %v", err)
	} else {
		release()
	}
}

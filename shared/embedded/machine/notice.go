package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/capacity"
	"rollout/shared/fault"
)

const (
	// maxNoticeFile is the largest notice file, in bytes.
	maxNoticeFile = 4 << 10
	// maxLead is the longest lead of a notice, in seconds.
	maxLead = 24 * 60 * 60
)

// Notices delivers a notice for each new content of the notice file; see
// capacity.Source. Users and tests simulate a cloud with the file. Other than that, the
// only notice on a machine outside a cloud is SIGTERM, which main handles.
func (m *Machine) Notices(ctx context.Context) <-chan capacity.Notice {
	out := make(chan capacity.Notice)
	go func() {
		defer close(out)
		if m.options.NoticePath == "" {
			<-ctx.Done()
			return
		}
		m.watchNotices(ctx, out)
	}()
	return out
}

// watchNotices reads the notice file at each poll, until ctx ends. It is polled, not
// watched: a watch of its folder reports each write of the state, and costs an idle worker
// more than the polls do.
func (m *Machine) watchNotices(ctx context.Context, out chan<- capacity.Notice) {
	poll := time.NewTicker(m.options.NoticePoll)
	defer poll.Stop()
	var last []byte
	for {
		content, err := readNotice(m.options.NoticePath)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			last = nil
		case err != nil || bytes.Equal(content, last):
			// The file is unreadable, perhaps being written, or unchanged.
		default:
			last = content
			notice, err := parseNotice(content)
			if err != nil {
				m.options.Logger.Warn("the notice file is invalid", "path", m.options.NoticePath, "error", err)
				break
			}
			select {
			case out <- notice:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
	}
}

// readNotice reads the notice file, up to one byte more than maxNoticeFile.
func readNotice(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened for reading; closing cannot lose data
	return io.ReadAll(io.LimitReader(f, maxNoticeFile+1))
}

// parseNotice parses {"reason":"spot","lead_seconds":30}.
func parseNotice(content []byte) (capacity.Notice, error) {
	var file struct {
		Reason      string  `json:"reason"`
		LeadSeconds float64 `json:"lead_seconds"`
	}
	if len(content) > maxNoticeFile {
		return capacity.Notice{}, fault.New(fault.Invalid, "the notice is longer than %d bytes", maxNoticeFile)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&file)
	if err == nil && (file.Reason == "" || file.LeadSeconds < 0 || file.LeadSeconds > maxLead) {
		err = fault.New(fault.Invalid, "the notice needs a reason, and lead_seconds from 0 to %d", maxLead)
	}
	if err != nil {
		return capacity.Notice{}, &fault.Error{Kind: fault.Invalid, Err: err,
			Remedy: `write {"reason":"spot","lead_seconds":30}`}
	}
	lead := time.Duration(file.LeadSeconds * float64(time.Second))
	return capacity.Notice{Reason: file.Reason, Lead: lead}, nil
}

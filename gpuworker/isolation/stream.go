package isolation

import (
	"io"
	"sync"
)

// meteredOutput reads the two streams of a command to their ends. It keeps the beginning of
// each, counts the rest, and tells when both together are over the limit.
type meteredOutput struct {
	keep  int
	limit int64
	over  chan struct{} // closed when the limit is exceeded

	mu    sync.Mutex
	total int64
	wg    sync.WaitGroup
}

func newMeteredOutput(keep int, limit int64) *meteredOutput {
	return &meteredOutput{keep: keep, limit: limit, over: make(chan struct{})}
}

// read reads r to its end in a goroutine of its own. o is complete after wait.
func (m *meteredOutput) read(r io.ReadCloser, o *Output) {
	m.wg.Go(func() {
		defer r.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Read(buf)
			if room := m.keep - len(o.Kept); room > 0 {
				o.Kept = append(o.Kept, buf[:min(n, room)]...)
			}
			o.Bytes += int64(n)
			m.count(n)
			if err != nil {
				return // the end: nothing else can happen to a pipe that is open
			}
		}
	})
}

func (m *meteredOutput) count(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.total
	m.total += int64(n)
	if before <= m.limit && m.total > m.limit {
		close(m.over)
	}
}

// wait returns when both streams are at their ends.
func (m *meteredOutput) wait() { m.wg.Wait() }

package bucket

import (
	"sync"

	"golang.org/x/sys/unix"

	"rollout/shared/disk"
)

// durableFolders remembers the folders whose names in the folders above are durable, so
// that a put need not sync the whole path each time. It holds each of them open: the
// kernel gives the inode number of a folder that is open to no other folder, also if
// another process removes it.
type durableFolders struct {
	mu   sync.Mutex
	held map[string]heldFolder // by path
}

type heldFolder struct {
	id folderID
	fd int
}

// maxDurable is the most remembered folders. Beyond it, one is forgotten for each new
// one, and synced again when it is used.
const maxDurable = 128

// has reports whether the name of the open folder is durable.
func (s *durableFolders) has(f *folder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok := s.held[f.path]
	return ok && held.id == f.id
}

// add remembers an open folder.
func (s *durableFolders) add(f *folder) {
	fd, err := unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil { // such as too many open files: the folder is synced again next time
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = make(map[string]heldFolder)
	}
	s.forget(f.path)
	for path := range s.held {
		if len(s.held) < maxDurable {
			break
		}
		s.forget(path)
	}
	s.held[f.path] = heldFolder{f.id, fd}
}

// remove forgets the folder at the path, which was removed.
func (s *durableFolders) remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(path)
}

// forget closes the folder at the path, if it is remembered. The caller holds mu.
func (s *durableFolders) forget(path string) {
	if held, ok := s.held[path]; ok {
		_ = unix.Close(held.fd) // opened for reading; closing cannot lose data
		delete(s.held, path)
	}
}

// close forgets all folders.
func (s *durableFolders) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.held {
		s.forget(path)
	}
}

// folderSyncs lets concurrent puts into one folder share its syncs.
type folderSyncs struct {
	mu      sync.Mutex
	folders map[folderID]*folderSync
}

// folderSync is the state of the syncs of one folder.
type folderSync struct {
	running sync.Mutex // held during a sync
	next    *syncRound // the round that new callers join, or nil
	users   int        // callers that have not returned
}

// syncRound is one sync that several callers share.
type syncRound struct {
	done chan struct{}
	err  error // valid after done is closed
}

// sync returns after a sync that began after the call. The first caller of a round
// performs the sync; callers that arrive before it begins share its result.
func (s *folderSyncs) sync(d disk.Disk, f *folder) error {
	s.mu.Lock()
	if s.folders == nil {
		s.folders = make(map[folderID]*folderSync)
	}
	shared := s.folders[f.id]
	if shared == nil {
		shared = &folderSync{}
		s.folders[f.id] = shared
	}
	shared.users++
	round, leader := shared.next, false
	if round == nil {
		round, leader = &syncRound{done: make(chan struct{})}, true
		shared.next = round
	}
	s.mu.Unlock()

	if leader {
		shared.running.Lock()
		s.mu.Lock()
		shared.next = nil
		s.mu.Unlock()
		round.err = d.Sync(f.fd)
		shared.running.Unlock()
		close(round.done)
	}
	<-round.done

	s.mu.Lock()
	defer s.mu.Unlock()
	if shared.users--; shared.users == 0 {
		delete(s.folders, f.id)
	}
	return round.err
}

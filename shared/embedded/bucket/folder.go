package bucket

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/blob"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// folder is an open folder of a bucket. All work happens relative to it with
// single names, so that nobody can swap a folder on the way for a link.
type folder struct {
	fd   int
	path string // relative to the bucket; "" is the bucket itself
	id   folderID
	// unsettled are the folders above that may not be on the disk yet with
	// the entry that leads here; outermost first.
	unsettled []*folder
	// lent: it is the bucket's own and stays open.
	lent bool
}

// folderID tells folders apart, whatever they are called.
type folderID struct{ dev, ino uint64 }

// enter opens the folder with the path, segment by segment, following no
// links; with create it makes what is missing and notes which folders above
// must be synced before something in it counts as durable.
func (b *Bucket) enter(path string, create bool) (*folder, error) {
	at := &folder{fd: int(b.root.Fd()), id: b.rootID, lent: true}
	if path == "" {
		return at, nil
	}
	if known := b.enterKnown(path, create); known != nil {
		return known, nil
	}
	for name := range strings.SplitSeq(path, "/") {
		child := name
		if at.path != "" {
			child = at.path + "/" + name
		}
		next, err := openFolder(at.fd, name, child)
		if create && err == unix.ENOENT {
			if err = unix.Mkdirat(at.fd, name, 0o755); err == nil || err == unix.EEXIST {
				next, err = openFolder(at.fd, name, child)
			}
		}
		if err != nil {
			at.close()
			return nil, err
		}
		if create && !b.settled.has(next.id) {
			next.unsettled, at.unsettled = append(at.unsettled, at), nil
		} else {
			at.close()
		}
		at = next
	}
	return at, nil
}

// enterKnown opens the folder in one step if it is there and, with settled,
// nothing above it must be synced; otherwise it is nil.
func (b *Bucket) enterKnown(path string, settled bool) *folder {
	fd, err := openBelow(int(b.root.Fd()), path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	f := &folder{fd: fd, path: path}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		f.id = idOf(&st)
		if !settled || b.settled.has(f.id) {
			return f
		}
	}
	f.close()
	return nil
}

// openFolder opens the folder called name within the open folder fd.
func openFolder(fd int, name, path string) (*folder, error) {
	f := &folder{path: path}
	err := filesystem.IgnoreEINTR(func() (err error) {
		f.fd, err = unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	var st unix.Stat_t
	if err == unix.ENOTDIR && unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && isLink(&st) {
		return nil, unix.ELOOP
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Fstat(f.fd, &st); err != nil {
		f.close()
		return nil, err
	}
	f.id = idOf(&st)
	return f, nil
}

func idOf(st *unix.Stat_t) folderID {
	return folderID{dev: uint64(st.Dev), ino: st.Ino} //nolint:unconvert // Dev is an int32 on darwin
}

// close closes the folder and those above that it holds.
func (f *folder) close() {
	for _, above := range f.unsettled {
		above.close()
	}
	if !f.lent {
		_ = unix.Close(f.fd) // opened for reading: nothing can be lost
	}
}

// removed reports whether the folder was removed since it was opened.
func (f *folder) removed() bool {
	var st unix.Stat_t
	return unix.Fstat(f.fd, &st) == nil && st.Nlink == 0
}

// stat describes the object with the key, which is in this folder.
func (f *folder) stat(key string) (blob.Info, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(f.fd, nameOf(key), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return blob.Info{}, err
	}
	return describe(key, &st)
}

// describe returns what the object with the key is, or why it is none: links
// are refused, and anything else that is not a regular file is not there.
func describe(key string, st *unix.Stat_t) (blob.Info, error) {
	if isLink(st) {
		return blob.Info{}, unix.ELOOP
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return blob.Info{}, fault.New(fault.NotFound, "%q is not a regular file", key)
	}
	modified := time.Unix(st.Mtim.Unix())
	return blob.Info{
		Key:     key,
		Size:    st.Size,
		Version: fmt.Sprintf("%x-%x-%x", st.Ino, st.Size, modified.UnixNano()),
		ModTime: modified,
	}, nil
}

func isLink(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

// settle makes the folder's entries, and the way to it, durable.
func (b *Bucket) settle(f *folder) error {
	if err := b.syncs.sync(f); err != nil {
		return err
	}
	for i, above := range f.unsettled {
		if err := b.syncs.sync(above); err != nil {
			return err
		}
		if i > 0 {
			b.settled.add(above.id)
		}
	}
	if len(f.unsettled) > 0 {
		b.settled.add(f.id)
	}
	return nil
}

// settledFolders remembers folders whose entry in the folder above is known to
// be durable, so that a put does not sync the whole way down each time.
type settledFolders struct {
	mu    sync.Mutex
	known map[folderID]struct{}
}

// maxSettled bounds the memory; beyond it, some folders are synced again.
const maxSettled = 4096

func (s *settledFolders) has(id folderID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[id]
	return ok
}

func (s *settledFolders) add(id folderID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSettled {
		s.known = make(map[folderID]struct{})
	}
	s.known[id] = struct{}{}
}

// forget is called before a folder is removed: its number may be used again.
func (s *settledFolders) forget(id folderID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, id)
}

// folderSyncs lets concurrent puts into one folder share its sync.
type folderSyncs struct {
	mu      sync.Mutex
	folders map[folderID]*folderSync
}

// folderSync is a folder that somebody is syncing.
type folderSync struct {
	running sync.Mutex // held by the one who syncs
	next    *syncRound // the round that newcomers join; nil if none has begun
	users   int
}

// syncRound is one sync and those who wait for it.
type syncRound struct {
	done chan struct{}
	err  error // valid once done is closed
}

// sync returns when a sync that began after the call has ended. The first to
// ask leads; those who ask before the leader's sync begins share it.
func (s *folderSyncs) sync(f *folder) error {
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
	round, leads := shared.next, false
	if round == nil {
		round, leads = &syncRound{done: make(chan struct{})}, true
		shared.next = round
	}
	s.mu.Unlock()

	if leads {
		shared.running.Lock()
		s.mu.Lock()
		shared.next = nil
		s.mu.Unlock()
		round.err = filesystem.IgnoreEINTR(func() error { return unix.Fsync(f.fd) })
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

// Package disktest lets the power of a machine fail at any point of an operation.
//
//	files of the real disk ◀──calls── Process (a disk.Disk) ──what is durable──▶ Machine
//	                                                                  Reboot ──▶ a folder as it is after the failure
//
// A Process performs the calls of package disk on a real folder. Its Machine keeps what
// of them is durable: the content of each file at its last sync, and the names in each
// folder at its last sync. It syncs nothing really. Reboot writes a folder that a file
// system may show after the failure: each change of a name that was not synced is kept
// or lost, and a file that was not synced has its old bytes, a part of the new ones, or
// zeros. A rename is kept or lost as a whole. A folder whose name is lost takes with it
// what it holds. Try and FindEverySync run an operation with many such failures.
//
// Only tests import the package.
package disktest

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Machine has one folder of the real disk and knows what of it is durable. It is safe
// for concurrent use.
type Machine struct {
	mu    sync.Mutex
	root  string
	top   *node
	live  map[inode]*node // files and folders that exist
	owned map[string]bool
	// ignored is the call site of a sync that has no effect, "" for none.
	ignored string
	sites   map[string]bool // call sites of syncs so far
}

type inode struct{ dev, ino uint64 }

// node is a file or a folder.
type node struct {
	folder bool

	// Of a file.
	durable []byte    // its content at the last sync
	synced  bool      // it was synced once
	owned   bool      // its writer syncs it without the machine
	time    time.Time // its modification time at the last sync
	last    []byte    // its last content, when its last name was removed
	gone    bool      // its last name was removed

	// Of a folder.
	names   map[string]*node // durable
	changes []*change        // not durable, in order
}

// change is a change of one name in a folder.
type change struct {
	name string
	to   *node // nil if the name was removed
	call *call
}

// call is a call that changed names: a rename changes two.
type call struct {
	durable bool // one of its folders was synced
}

// New returns a machine whose disk holds the folder root as it is now. owned are base
// names of files that are written without package disk, by a writer that syncs them,
// such as SQLite: what these files hold is durable, and so is a name that their writer
// gives them.
func New(root string, owned ...string) *Machine {
	m := &Machine{root: root, live: map[inode]*node{}, owned: map[string]bool{}, sites: map[string]bool{}}
	for _, name := range owned {
		m.owned[name] = true
	}
	m.top = m.load(root)
	return m
}

// Settle makes everything durable, as if much time went by.
func (m *Machine) Settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.live)
	m.top = m.load(m.root)
}

// load returns the file or folder at the path as a durable node.
func (m *Machine) load(path string) *node {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		panic(err) // the folder belongs to the test
	}
	if n := m.live[idOf(&st)]; n != nil { // a file with two names
		return n
	}
	n := &node{folder: st.Mode&unix.S_IFMT == unix.S_IFDIR, synced: true, time: time.Unix(st.Mtim.Unix()),
		owned: m.owned[filepath.Base(path)]}
	m.live[idOf(&st)] = n
	if !n.folder {
		n.durable = read(path)
		return n
	}
	n.names = map[string]*node{}
	for _, name := range list(path) {
		n.names[name] = m.load(filepath.Join(path, name))
	}
	return n
}

func idOf(st *unix.Stat_t) inode { return inode{uint64(st.Dev), st.Ino} } //nolint:unconvert // int32 on darwin

// now returns what the name in the folder means to processes.
func (n *node) now(name string) *node {
	for i := len(n.changes) - 1; i >= 0; i-- {
		if n.changes[i].name == name {
			return n.changes[i].to
		}
	}
	return n.names[name]
}

// observe notes changes of the folder at the path that were made without the machine,
// such as files that SQLite creates.
func (m *Machine) observe(n *node, path string) {
	real := map[string]bool{}
	for _, name := range list(path) {
		real[name] = true
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(path, name), &st) != nil {
			continue
		}
		known := n.now(name)
		if known == nil || m.live[idOf(&st)] != known {
			if known != nil {
				m.drop(known, known.durable)
			}
			known = &node{folder: st.Mode&unix.S_IFMT == unix.S_IFDIR, names: map[string]*node{}, owned: m.owned[name]}
			m.live[idOf(&st)] = known
			m.change(n, name, known, &call{})
			n.adopt(name, m.owned[name])
		}
		if known.folder {
			m.observe(known, filepath.Join(path, name))
		}
	}
	for name := range n.current() {
		if !real[name] {
			m.drop(n.now(name), n.now(name).durable)
			m.change(n, name, nil, &call{})
			n.adopt(name, m.owned[name])
		}
	}
}

// current returns the names in the folder as processes see them.
func (n *node) current() map[string]*node {
	all := maps.Clone(n.names)
	for _, c := range n.changes {
		if all[c.name] = c.to; c.to == nil {
			delete(all, c.name)
		}
	}
	return all
}

// change notes a change of a name.
func (m *Machine) change(in *node, name string, to *node, by *call) {
	if to != nil && to.synced && m.owned[name] {
		to.owned = true
	}
	in.changes = append(in.changes, &change{name, to, by})
}

// adopt makes a name durable that its owner changed.
func (n *node) adopt(name string, owned bool) {
	if !owned {
		return
	}
	if to := n.now(name); to != nil {
		n.names[name] = to
	} else {
		delete(n.names, name)
	}
	n.changes = slices.DeleteFunc(n.changes, func(c *change) bool { return c.name == name })
}

// drop notes that a file lost its last name while it had the content, or that a folder
// was removed with all that is in it.
func (m *Machine) drop(n *node, content []byte) {
	n.gone, n.last = true, content
	if n.folder {
		for _, below := range n.current() {
			m.drop(below, below.durable)
		}
	}
	for id, other := range m.live {
		if other == n {
			delete(m.live, id)
		}
	}
}

// sync makes a file or folder durable.
func (m *Machine) sync(n *node, content []byte, modified time.Time) {
	if !n.folder {
		n.durable, n.synced, n.time = content, true, modified
		return
	}
	n.names = n.current()
	for _, c := range n.changes {
		c.call.durable = true
	}
	n.changes = nil
}

// Reboot writes into the new folder dir what the disk holds after a failure of the
// power now, and returns a machine with it.
func (m *Machine) Reboot(r *rand.Rand, dir string) *Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reboot(r, dir)
}

func (m *Machine) reboot(r *rand.Rand, dir string) *Machine {
	m.observe(m.top, m.root)
	w := rebooter{
		rand: r, lost: r.IntN(4), kept: map[*call]bool{}, paths: map[*node]string{}, written: map[*node]string{},
	}
	w.locate(m.top, m.root)
	w.folder(m.top, dir)
	next := New(dir, slices.Collect(maps.Keys(m.owned))...)
	next.ignored = m.ignored
	next.sites = m.sites
	return next
}

// rebooter writes one state of a disk after a failure of the power.
type rebooter struct {
	rand    *rand.Rand
	lost    int              // 0: everything that is not durable is lost; 1: nothing; more: a part
	kept    map[*call]bool   // the calls that were decided on
	paths   map[*node]string // where files that exist are
	written map[*node]string // where their content is after the failure
}

// locate finds where the files are.
func (w *rebooter) locate(n *node, path string) {
	w.paths[n] = path
	if n.folder {
		for name, below := range n.current() {
			w.locate(below, filepath.Join(path, name))
		}
	}
}

// keeps reports whether a change of a folder that was not synced survived.
func (w *rebooter) keeps(c *change) bool {
	if c.call.durable { // the folder of the other name was synced
		return c.to != nil || w.rand.IntN(2) == 0
	}
	kept, decided := w.kept[c.call]
	if !decided {
		kept = w.lost == 1 || w.lost > 1 && w.rand.IntN(2) == 0
		w.kept[c.call] = kept
	}
	return kept
}

func (w *rebooter) folder(n *node, path string) {
	must(os.MkdirAll(path, 0o755))
	names := maps.Clone(n.names)
	for _, c := range n.changes {
		if !w.keeps(c) {
			continue
		}
		if names[c.name] = c.to; c.to == nil {
			delete(names, c.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		to, at := names[name], filepath.Join(path, name)
		switch {
		case to.folder:
			w.folder(to, at)
		case w.written[to] != "":
			must(os.Link(w.written[to], at))
		default:
			w.file(to, at)
		}
	}
}

func (w *rebooter) file(n *node, at string) {
	w.written[n] = at
	content := n.last
	if !n.gone {
		content = read(w.paths[n])
	}
	durable := n.owned || n.synced && bytes.Equal(content, n.durable)
	if !durable {
		content = w.torn(n.durable, content)
	}
	must(os.WriteFile(at, content, 0o644))
	if durable && !n.time.IsZero() {
		must(os.Chtimes(at, n.time, n.time))
	}
}

// page is the unit in which a file system writes bytes.
const page = 4096

// torn returns what a file may hold whose content was durable once and changed since.
func (w *rebooter) torn(durable, content []byte) []byte {
	switch w.rand.IntN(5) {
	case 0:
		return durable
	case 1:
		return content
	case 2:
		return make([]byte, len(content))
	case 3:
		return content[:w.rand.IntN(len(content)+1)]
	}
	out := bytes.Clone(content)
	for at := 0; at < len(out); at += page {
		if w.rand.IntN(2) == 0 {
			end := min(at+page, len(out))
			clear(out[at:end])
			copy(out[at:end], durable[min(at, len(durable)):])
		}
	}
	return out
}

func read(path string) []byte {
	b, err := os.ReadFile(path)
	must(err)
	return b
}

func list(path string) []string {
	entries, err := os.ReadDir(path)
	must(err)
	var names []string
	for _, e := range entries {
		if e.IsDir() || e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names
}

// must panics: a test cannot go on without its own files.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

package modelcache

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"rollout/gpuworker/machine"
	"rollout/shared/config"
	"rollout/shared/core/servers"
	"rollout/shared/fault"
	"rollout/shared/hub"
	"rollout/shared/models"
)

// Places below the root of the machine's file system, as package machine mounts them.
const (
	hubFolder   = "var/lib/rollout/models/hub"
	ownFolder   = "var/lib/rollout/model"
	secretsFile = "etc/rollout/engine.env"
)

// maxRef bounds what is read of a file that names a commit.
const maxRef = 256

// Machine is a machine of a pool.
type Machine struct {
	Pool     config.Pool
	Machines config.PoolMachines // with defaults
	Bucket   string              // the address of the installation's keys, such as "s3://acme/team/"
	Root     string              // of the file system
	// HubFolder is where the server looks for models of the hub; "" is where package machine
	// mounts it.
	HubFolder string
	Cache     models.Cache
	Hub       hub.Hub
	Out       io.Writer // gets lines for the machine's console
	Now       func() time.Time
}

// Fetch brings the model to the machine. A model of the hub that is not in the bucket, or
// not whole, is not an error: the server fetches it. That of any other model is one.
func (m Machine) Fetch(ctx context.Context) error {
	if key, ok := m.ownKey(); ok {
		return m.fetchOwn(ctx, key)
	}
	if m.Pool.ModelSource() == config.ModelOfBucket {
		return &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("%s is not a model that was cached in this bucket", m.Pool.Model),
			Remedy: "write the address that `rollout model cache` printed, or the folder with the model's files"}
	}
	hubName, name := m.names()
	if why := m.leftOut(name); why != "" {
		return m.say("%s", why)
	}
	// The server needs time for the hub if the bucket turns out to be slow.
	limit := m.Machines.BootDeadline.Std() / 2
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fault.New(fault.Unavailable, "it took longer than %s, half of boot_deadline", limit))
	defer cancel()
	revision := cmp.Or(m.Pool.Revision, hub.DefaultRevision)
	commit := revision
	if !models.IsCommit(revision) {
		found, err := m.Hub.Find(ctx, hubName, revision)
		if err != nil {
			return m.say("which commit %s is can't be asked, so the bucket's models are not used: %v", revision, err)
		}
		commit = found.Commit
	}
	manifest, err := m.Cache.Find(ctx, name, commit)
	if fault.Is(err, fault.NotFound) {
		return m.say("the bucket has no copy of %s at commit %.12s: the server fetches it from the hub", m.Pool.Model, commit)
	}
	if err != nil {
		return m.say("the bucket's copy of %s can't be used, so the server fetches it from the hub: %v", m.Pool.Model, err)
	}
	return m.fetch(ctx, manifest, revision)
}

// fetch brings a model of the hub to where the server looks for it.
func (m Machine) fetch(ctx context.Context, manifest models.Manifest, revision string) error {
	root, err := m.openModel()
	if err != nil {
		return m.say("the bucket's copy of %s can't be used, so the server fetches it from the hub: %v", m.Pool.Model, err)
	}
	defer root.Close() // the files are closed
	began := m.Now()
	got, err := m.Cache.Fetch(ctx, manifest, root, path.Join(snapshots, manifest.Revision))
	if err == nil {
		err = writeRef(root, revision, manifest.Revision)
	}
	if err != nil {
		err = errors.Join(err, models.RemoveParts(root))
		return m.say("of %s, %d of %d files came from the bucket, and the server fetches the others from the hub: %v",
			m.Pool.Model, got.Files, len(manifest.Files), err)
	}
	return m.say("%s came from the bucket: %s in %s", m.Pool.Model, humanize.IBytes(uint64(manifest.Size())),
		m.Now().Sub(began).Round(time.Second))
}

// fetchOwn brings a model that only the bucket has.
func (m Machine) fetchOwn(ctx context.Context, key string) error {
	manifest, err := m.Cache.FindOwn(ctx, key)
	if err != nil {
		return fault.Wrap(err, "fetch the model")
	}
	at := filepath.Join("/", m.Root, ownFolder)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return fault.WithKind(fault.Invalid, err, "make the model's folder")
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "open the model's folder")
	}
	defer root.Close() // the files are closed
	began := m.Now()
	if _, err := m.Cache.Fetch(ctx, manifest, root, "."); err != nil {
		return err
	}
	if m.Machines.Server == servers.LlamaCpp {
		if err := m.nameFiles(manifest); err != nil {
			return err
		}
	}
	return m.say("the model %s came from the bucket: %s in %s", manifest.Name, humanize.IBytes(uint64(manifest.Size())),
		m.Now().Sub(began).Round(time.Second))
}

// nameFiles tells llama.cpp's server which files to load, by its variables: its arguments
// were written before the list of files was here.
func (m Machine) nameFiles(manifest models.Manifest) error {
	paths := make([]string, 0, len(manifest.Files))
	for _, f := range manifest.Files {
		paths = append(paths, f.Path)
	}
	g, ok := servers.PickGGUF(paths, "")
	if !ok {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the model %s has no .gguf file", manifest.Name),
			Remedy: "cache a folder with one, or name another server for the pool"}
	}
	return machine.AddModelFiles(m.Root, g)
}

// Store puts the model that the server fetched from the hub into the bucket, unless it is
// there and whole. Call it when the server is ready: its files are known to work. What
// prevents it is logged, and the machine works on.
func (m Machine) Store(ctx context.Context) error {
	hubName, name := m.names()
	if _, ok := m.ownKey(); ok || m.leftOut(name) != "" {
		return nil
	}
	said, err := m.store(ctx, hubName, name)
	if err != nil {
		return m.say("%s is not stored in the bucket: %v", m.Pool.Model, err)
	}
	if said != "" {
		return m.say("%s", said)
	}
	return nil
}

func (m Machine) store(ctx context.Context, hubName, name string) (said string, err error) {
	root, err := m.openModel()
	if err != nil {
		return "", err
	}
	defer root.Close() // read only
	commit, err := readRef(root, cmp.Or(m.Pool.Revision, hub.DefaultRevision))
	if err != nil {
		return "", err
	}
	if _, err := m.Cache.FindWhole(ctx, name, commit); !fault.Is(err, fault.NotFound) {
		return "", err
	}
	model, err := m.Hub.Find(ctx, hubName, commit)
	if err != nil {
		return "", err
	}
	folder := models.FolderIn(root, path.Join(snapshots, commit))
	there, err := folder.List()
	if err != nil {
		return "", err
	}
	source := hub.Copy{Model: model, From: folder}
	files, err := source.Listed(there)
	if err != nil {
		return "", err
	}
	// Machines that boot together share the work only if they do not go the same way.
	rand.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	began := m.Now()
	manifest, stored, err := m.Cache.Store(ctx, name, commit, files, source)
	if err != nil || stored.Already {
		return "", err
	}
	return fmt.Sprintf("%s is stored in the bucket: %s, of which %s were not there, in %s", m.Pool.Model,
		humanize.IBytes(uint64(manifest.Size())), humanize.IBytes(uint64(stored.New)),
		m.Now().Sub(began).Round(time.Second)), nil
}

// ownKey returns the key of the manifest if the pool's model is one of the bucket's that
// has no hub.
func (m Machine) ownKey() (key string, ok bool) {
	key, ok = strings.CutPrefix(m.Pool.Model, m.Bucket)
	return key, ok && models.IsOwnKey(key)
}

// names returns the pool's model as the hub names it, and as the bucket does: with a tag for
// llama.cpp, which loads some of a model's files.
func (m Machine) names() (ofHub, ofBucket string) {
	ofHub = m.Pool.HubName()
	if m.Machines.Server != servers.LlamaCpp {
		return ofHub, ofHub
	}
	_, tag := models.SplitTag(m.Pool.Model)
	return ofHub, models.Tagged(ofHub, cmp.Or(tag, models.DefaultTag))
}

// leftOut says why the pool's model is not kept in the bucket, which would have that name;
// "" if it is.
func (m Machine) leftOut(name string) string {
	check := models.CheckName
	if m.Machines.Server == servers.LlamaCpp {
		check = models.CheckTagged
	}
	switch {
	case m.Pool.ModelSource() != config.ModelOfHub:
		return "the model is not one of the hub"
	case check(name) != nil:
		return m.Pool.Model + " is not a name of the hub: it is not kept in the bucket"
	case m.Machines.Server == servers.LlamaCpp && m.choosesFiles():
		return "engine_args or engine_env say which files llama.cpp takes, or where it keeps them: " +
			"the model is not kept in the bucket"
	}
	return ""
}

// choosesFiles reports whether the user's arguments or variables say which of a model's
// files llama.cpp takes, or where it keeps them. The tag then does not tell the files.
func (m Machine) choosesFiles() bool {
	return servers.NamesGGUF(m.Machines.EngineArgs, m.Machines.EngineEnv) || m.Machines.EngineEnv["LLAMA_CACHE"] != ""
}

// snapshots is the folder of a model's revisions.
const snapshots = "snapshots"

// openModel opens the folder of a model of the hub, and makes it. The server's container
// may have put links there, which os.Root does not follow out of the folder.
func (m Machine) openModel() (*os.Root, error) {
	hubModels := cmp.Or(m.HubFolder, filepath.Join("/", m.Root, hubFolder))
	at := filepath.Dir(hubModels)
	if err := os.MkdirAll(at, 0o755); err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "make the folder of models")
	}
	all, err := os.OpenRoot(at)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "open the folder of models")
	}
	defer all.Close() // the folder below stays open
	ofHub, _ := m.names()
	name := path.Join(filepath.Base(hubModels), "models--"+strings.ReplaceAll(ofHub, "/", "--"))
	if err := all.MkdirAll(name, 0o755); err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "make the model's folder")
	}
	root, err := all.OpenRoot(name)
	return root, fault.WithKind(fault.Invalid, err, "open the model's folder")
}

// writeRef notes which commit a branch or tag is, as Hugging Face's programs do, so that
// they find it without the hub as well.
func writeRef(root *os.Root, revision, commit string) error {
	if models.IsCommit(revision) {
		return nil
	}
	at := path.Join("refs", revision)
	err := root.MkdirAll(path.Dir(at), 0o755)
	if err == nil {
		err = root.WriteFile(at, []byte(commit), 0o644)
	}
	return fault.WithKind(fault.Invalid, err, "note the revision")
}

// readRef returns the commit that the server fetched for the revision.
func readRef(root *os.Root, revision string) (string, error) {
	if models.IsCommit(revision) {
		return revision, nil
	}
	f, err := root.Open(path.Join("refs", revision))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.NotFound, "the server did not note its commit")
	}
	if err != nil {
		return "", fault.WithKind(fault.Invalid, err, "read its commit")
	}
	defer f.Close() // read only
	text, err := io.ReadAll(io.LimitReader(f, maxRef))
	if err != nil {
		return "", fault.WithKind(fault.Invalid, err, "read its commit")
	}
	commit := strings.TrimSpace(string(text))
	if !models.IsCommit(commit) {
		return "", fault.New(fault.Corrupt, "the server noted no commit")
	}
	return commit, nil
}

// hubToken returns the token in the servers' environment, or "".
func hubToken(root string) string {
	f, err := os.Open(filepath.Join("/", root, secretsFile))
	if err != nil { // without it models are fetched as anybody
		return ""
	}
	defer f.Close() // read only
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if token, ok := strings.CutPrefix(lines.Text(), "HF_TOKEN="); ok {
			return token
		}
	}
	return ""
}

func (m Machine) say(format string, args ...any) error {
	_, err := fmt.Fprintf(m.Out, "rollout: "+format+"\n", args...)
	return err
}

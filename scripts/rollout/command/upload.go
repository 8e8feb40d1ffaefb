package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/installation"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// upload is a checked prompts file to copy into the bucket.
type upload struct {
	file      string // path
	key       string // of the object
	config    []byte // copied to configKey; nil leaves the config in the bucket unchanged
	configKey string
	inBucket  []byte // the config of the object in the bucket, if it is the one that counts
	outdated  bool   // the object at configKey held for an earlier run: it must not stay
	remove    bool   // the object at configKey is removed; config replaces it where that is not allowed
	source    string // names the config that counts; "" is the [defaults] of the deployment
	counts    []byte // that config, as its file has it; nil for the [defaults]
	part      bool   // of a file: it replaces nothing in the bucket, neither prompts nor a config
}

// numbered returns the upload under its n-th name: x.jsonl, x-2.jsonl, x-3.jsonl, and so on, with a config of the same
// name.
func (up upload) numbered(n int) upload {
	if n == 1 {
		return up
	}
	stem, packed, _ := input.SplitName(up.key)
	stem = fmt.Sprintf("%s-%d", stem, n)
	up.key, up.configKey, up.remove = stem+input.Suffix(packed), stem+".toml", false
	if up.config == nil {
		up.config = up.inBucket
	}
	return up
}

// checkUpload checks, before anything is copied, whether the file and its config can become a run. The settings, as of
// --set, are written over the config.
func checkUpload(
	ctx context.Context, in *installation.Installation, file, configPath string, settings []string,
) (upload, error) {
	up := upload{file: file, key: record.PromptsPrefix + filepath.Base(file)}
	if err := checkFile(file); err != nil {
		return up, err
	}
	if err := input.CheckPromptsKey(up.key); err != nil {
		return up, fault.Wrap(err, "submit %s", file)
	}
	if in.Cloud == "" {
		if err := checkOutside(file, in.Path(record.PromptsPrefix)); err != nil {
			return up, err
		}
	}
	if err := up.findConfig(ctx, in, configPath, len(settings) > 0); err != nil {
		return up, err
	}
	return up, up.set(in.Deployment.Defaults, settings)
}

// set writes the settings over the config, for this run alone. A config that was written so for an earlier run does not
// stay in the bucket, where the run's function would take it.
func (up *upload) set(defaults config.Run, settings []string) error {
	one := config.OneRun{Before: up.config}
	if one.Before == nil {
		one.Before = up.inBucket
	}
	if len(settings) == 0 && !up.outdated {
		return nil
	}
	if len(settings) == 0 && one.Before != nil {
		up.config = one.Before
		return nil
	}
	changed, err := config.SetRun(up.source, up.counts, defaults, settings)
	if err != nil {
		return err
	}
	info, err := os.Stat(up.file)
	if err != nil {
		return unreadable(err)
	}
	one.Size = info.Size()
	if up.config = one.Write(changed); len(settings) > 0 {
		up.counts = changed
		return nil
	}
	up.remove = true
	return nil
}

// fromBucket returns where the bucket has the config that counts; "" if it has not.
func (up upload) fromBucket(in *installation.Installation) string {
	for _, key := range []string{up.configKey, record.PromptsPrefix + installation.DeploymentFile} {
		if up.source == in.Path(key) {
			return up.source
		}
	}
	return ""
}

// runConfig returns the config that the run will have.
func (up upload) runConfig(in *installation.Installation) (config.Run, error) {
	if up.counts == nil {
		return in.Deployment.Defaults, nil
	}
	return config.ParseRun(up.source, up.counts)
}

// checkFile checks the file's type and its first bytes.
func checkFile(path string) error {
	info, err := os.Stat(path) // before opening, because opening a pipe blocks until it has a writer
	if err == nil && !info.Mode().IsRegular() {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s is not a regular file", path),
			Remedy: "write the prompts to a file first"}
	}
	if err != nil {
		return unreadable(err)
	}
	f, err := os.Open(path)
	if err != nil {
		return unreadable(err)
	}
	defer f.Close() // opened for reading: closing loses nothing
	return checkContent(path, f)
}

func unreadable(err error) error {
	return &fault.Error{Kind: fault.Invalid, Op: "read the prompts", Err: err,
		Remedy: "name a readable file of JSON lines"}
}

// magicBytes are the first bytes of compressed files, by file name extension.
var magicBytes = map[string]string{".gz": "\x1f\x8b", ".zst": "\x28\xb5\x2f\xfd"}

// checkContent checks that the beginning of the file is what its name says.
func checkContent(path string, f io.Reader) error {
	ext := filepath.Ext(path)
	packed, _ := input.Packing(path)
	raw := bufio.NewReader(f)
	if magic, compressed := magicBytes[ext]; compressed {
		if head, _ := raw.Peek(len(magic)); string(head) != magic { // a failure to read is met again
			return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s is not compressed as its name says", path),
				Remedy: "compress it, or remove " + ext + " from its name"}
		}
	}
	content, err := input.Unpack(raw, packed)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "%s", path)
	}
	defer content.Close() // opened for reading: closing loses nothing
	head := make([]byte, jsonl.RecognizeLen)
	n, err := io.ReadFull(content, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return unreadable(fault.Wrap(err, "%s", path))
	}
	return fault.Wrap(jsonl.Recognize(path, head[:n], err != nil), "%s", path)
}

// checkOutside refuses a file that is in the bucket's prompts folder. It became a run when it was written there, and
// copying it would start a second run or replace the file by itself.
func checkOutside(file, folder string) error {
	prompts, err := realPath(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path, err := realPath(file)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(prompts, path); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return nil
	}
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s is in the bucket already", file),
		Remedy: "files there become runs automatically: see `rollout status`"}
}

// realPath returns the absolute path with all symbolic links resolved.
func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	return abs, fault.WithKind(fault.Invalid, err, "find %s", path)
}

// findConfig reads and checks the config that the run will use: the given file, else the file of the same name next to
// the prompts, else the object in the bucket, which stays unchanged. changed says that settings
// will be written over it.
func (up *upload) findConfig(ctx context.Context, in *installation.Installation, given string, changed bool) error {
	keyStem, _, _ := input.SplitName(up.key)
	fileStem, _, _ := input.SplitName(up.file)
	up.configKey = keyStem + ".toml"
	adjacent := fileStem + ".toml"
	shared := record.PromptsPrefix + installation.DeploymentFile
	if up.configKey == shared {
		if given != "" || changed {
			return &fault.Error{Kind: fault.Invalid,
				Err:    fmt.Errorf("the config of %s would be %s, which applies to every file without a config", up.key, shared),
				Remedy: "rename the prompts file"}
		}
		adjacent = ""
	}
	for _, path := range []string{given, adjacent} {
		if path == "" {
			continue
		}
		src, err := installation.ReadConfig(path)
		if errors.Is(err, fs.ErrNotExist) && path != given {
			continue
		}
		if err != nil {
			return fault.WithKind(fault.Invalid, err, "the run's config")
		}
		up.config, up.counts, up.source = src, src, path
		return checkConfig(path, src)
	}
	for _, key := range []string{up.configKey, shared} {
		src, err := input.ReadObject(ctx, in.Ports.Blobs, key, config.MaxFileSize)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if fault.Is(err, fault.Corrupt) {
			return fault.WithKind(fault.Invalid, err, "the run's config")
		}
		if err != nil {
			return err
		}
		if key == up.configKey {
			one, is := config.ReadOneRun(src)
			if up.outdated = is; is && one.Before == nil {
				continue
			}
			if is {
				src = one.Before
			}
			up.inBucket = src
		}
		up.counts, up.source = src, in.Path(key)
		return checkConfig(in.Path(key), src)
	}
	return nil
}

func checkConfig(path string, src []byte) error {
	_, err := config.ParseRun(path, src)
	return err
}

// putConfig copies the config into the bucket. Call it before copying the prompts, which start the run.
func (up upload) putConfig(ctx context.Context, in *installation.Installation) error {
	if up.config == nil {
		return nil
	}
	if up.remove {
		if err := in.Ports.Blobs.Delete(ctx, up.configKey, ""); !fault.Is(err, fault.Denied) {
			return err
		}
	}
	_, err := in.Ports.Blobs.Put(ctx, up.configKey, bytes.NewReader(up.config), blob.PutOptions{CreateOnly: up.part})
	return err
}

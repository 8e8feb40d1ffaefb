package command

import (
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

// upload is a checked file on its way into the bucket.
type upload struct {
	file string
	key  string
	// config is the config to put beside it; nil leaves the bucket's as it is.
	config    []byte
	configKey string
}

// checkUpload refuses, before anything is copied, what could not become a run.
func checkUpload(ctx context.Context, in *installation.Installation, file, configPath string) (upload, error) {
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
	return up, up.findConfig(ctx, in, configPath)
}

// checkFile looks at the file's kind and first bytes.
func checkFile(path string) error {
	info, err := os.Stat(path) // before it is opened: opening a pipe would wait for its writer
	if err == nil && !info.Mode().IsRegular() {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s is not a regular file", path), Remedy: "write the prompts to a file first"}
	}
	if err != nil {
		return unreadable(err)
	}
	f, err := os.Open(path)
	if err != nil {
		return unreadable(err)
	}
	defer f.Close() // read only: nothing can be lost
	head := make([]byte, jsonl.SniffLen)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return unreadable(err)
	}
	return checkHead(path, head[:n])
}

func unreadable(err error) error {
	return &fault.Error{Kind: fault.Invalid, Op: "read the prompts", Err: err, Remedy: "name a file of JSON lines that this user may read"}
}

// packed are the first bytes of what a name promises.
var packed = map[string]string{".gz": "\x1f\x8b", ".zst": "\x28\xb5\x2f\xfd"}

func checkHead(path string, head []byte) error {
	ext := filepath.Ext(path)
	magic, isPacked := packed[ext]
	switch {
	case !isPacked:
		return fault.Wrap(jsonl.Sniff(head), "%s", path)
	case !bytes.HasPrefix(head, []byte(magic)):
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s is not packed as its name says", path),
			Remedy: "pack it, or take " + ext + " off its name"}
	}
	return nil
}

// checkOutside refuses a file that is among the bucket's prompts already: it
// was taken up when it was written there, and copying it would make a second
// run of it, or replace it by itself.
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
		Remedy: "files there are taken up by themselves: `rollout status` shows their runs"}
}

// realPath is the absolute path without links.
func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	return abs, fault.WithKind(fault.Invalid, err, "find %s", path)
}

// findConfig reads and checks the config that the run will have: the given
// one, the one beside the file, or the one in the bucket, which then stays as
// it is.
func (up *upload) findConfig(ctx context.Context, in *installation.Installation, given string) error {
	keyStem, _, _ := input.SplitName(up.key)
	fileStem, _, _ := input.SplitName(up.file)
	up.configKey = keyStem + ".toml"
	beside := fileStem + ".toml"
	shared := record.PromptsPrefix + installation.DeploymentFile
	if up.configKey == shared {
		if given != "" {
			return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the config of %s would be %s, which holds for every file without a config", up.key, shared),
				Remedy: "give the prompts file another name"}
		}
		beside = ""
	}
	for _, path := range []string{given, beside} {
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
		up.config = src
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
		return checkConfig(in.Path(key), src)
	}
	return nil
}

func checkConfig(path string, src []byte) error {
	_, err := config.ParseRun(path, src)
	return err
}

// putConfig puts the config into the bucket: first, because an object becomes
// a run as soon as it is there.
func (up upload) putConfig(ctx context.Context, in *installation.Installation) error {
	if up.config == nil {
		return nil
	}
	_, err := in.Ports.Blobs.Put(ctx, up.configKey, bytes.NewReader(up.config), blob.PutOptions{})
	return err
}

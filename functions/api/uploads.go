package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"rollout/functions/dryrun"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/listen"
	"rollout/shared/record"
)

// Uploads returns where files that lie under files/, as POST /v1/files puts them, are checked and
// become runs:
//
//	POST /v1/files/{id}/check  {"set":[…]}, optional → 200, UploadCheck: a dry run
//	POST /v1/files/{id}/start  {"name":"…","set":[…]}, optional → 202, {"run_id":"…","key":"…"}
//
// A run that is started so is that of the file as prompts/<name>.jsonl, with the settings over the
// config that counts there.
func (s *Service) Uploads() Mount {
	mux := http.NewServeMux()
	mux.Handle("/v1/files/{id}/check", methods{http.MethodPost: s.checkUpload})
	mux.HandleFunc("/v1/files/{id}/start", func(w http.ResponseWriter, r *http.Request) {
		// The file is copied, which takes its time where the disk can't share its blocks.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(startTime)) // recorders of tests have none
		methods{http.MethodPost: s.startUpload}.ServeHTTP(w, r)
	})
	bounds := listen.DefaultBounds()
	bounds.HandlerTimeout = startTime
	return Mount{Paths: []string{"/v1/files/{id}/check", "/v1/files/{id}/start"}, Handler: bounds.Within(mux)}
}

// Bounds of checks and starts.
const (
	checkTime   = 5 * time.Second
	startTime   = 10 * time.Minute
	maxBadLines = 10
	maxHeads    = 5
	maxNames    = 100 // that are tried for a file whose name is taken

	// sharedConfig is the config of every prompts file without one of its own.
	sharedConfig = "rollout.toml"

	// bytesPerToken is a rule of thumb for English text.
	bytesPerToken = 4
)

// UploadCheck is what a dry run of a file says. What is null is not known.
type UploadCheck struct {
	Rows       uint64       `json:"rows"`
	BadLines   uint64       `json:"bad_lines"` // duplicates included
	FirstBad   []BadLine    `json:"first_bad"`
	Duplicates uint64       `json:"duplicates"`
	Bytes      int64        `json:"bytes"` // of the file, as it was uploaded
	Tokens     *int64       `json:"prompt_tokens_estimate"`
	Shards     *uint64      `json:"shards"`
	CostUSD    *float64     `json:"cost_usd_estimate"`
	ETASeconds *float64     `json:"eta_seconds"`
	Dialect    dialect.Name `json:"dialect"`
	Model      string       `json:"model"`
	Head       []HeadLine   `json:"head"` // the first lines that are requests
	Warnings   []string     `json:"warnings"`
	// Complete is false if the file is so long that only its begin was read: then the counts are
	// those of the begin.
	Complete bool `json:"complete"`
}

// BadLine is a line that the run would refuse.
type BadLine struct {
	Line    uint64 `json:"line"`
	Message string `json:"message"`
}

// HeadLine is one of the first items.
type HeadLine struct {
	Item    uint64 `json:"index"`
	ID      string `json:"id"`
	Preview string `json:"preview"` // the begin of its request
}

// startBody is the body of a check and of a start.
type startBody struct {
	Name     string   `json:"name"`
	Set      []string `json:"set"`
	Endpoint string   `json:"endpoint"` // for clients that say it; each row says where it goes
}

// uploadedFile returns a file under files/.
func (s *Service) uploadedFile(r *http.Request) (f record.File, body startBody, err error) {
	if err := read(r, &body); err != nil {
		return f, body, err
	}
	id := r.PathValue("id")
	_, found, err := host.Load(r.Context(), s.ports.Docs, record.FileKey(id), &f)
	if fault.Is(err, fault.Invalid) { // it can't be a key
		err = nil
	}
	if err == nil && (!found || !f.Expires.IsZero() && !s.ports.Clock.Now().Before(f.Expires)) {
		err = fault.New(fault.NotFound, "there is no file %.80q", id)
	}
	return f, body, err
}

// uploadConfig returns the config that a run of the file has, and, if there are settings, the file to
// write for it.
func (s *Service) uploadConfig(ctx context.Context, f record.File, set []string) (c config.Run, file []byte,
	err error) {
	key := record.PromptsPrefix + sharedConfig
	src, err := input.ReadObject(ctx, s.ports.Blobs, key, config.MaxFileSize)
	if fault.Is(err, fault.NotFound) {
		src, err = nil, nil
	}
	if err != nil {
		return c, nil, err
	}
	if len(set) > 0 {
		if src, err = config.SetRun(key, src, s.deployment.Defaults, set); err != nil {
			return c, nil, err
		}
		file = config.OneRun{Size: f.Input.Size}.Write(src)
	}
	if src == nil {
		return s.deployment.Defaults, nil, nil
	}
	c, err = config.ParseRun(key, src)
	return c, file, err
}

// checkUpload answers with a dry run of a file.
func (s *Service) checkUpload(r *http.Request) (int, any, error) {
	ctx := r.Context()
	f, body, err := s.uploadedFile(r)
	if err != nil {
		return 0, nil, err
	}
	run, _, err := s.uploadConfig(ctx, f, body.Set)
	if err != nil {
		return 0, nil, err
	}
	if run.Kind != config.KindBatch {
		return 0, nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the config says kind = %q", run.Kind),
			Remedy: "check the file with `rollout submit --dry-run`"}
	}
	engine := s.deployment.Engine
	if len(s.deployment.InferPools()) > 0 {
		pool, revision, err := kind.Serving(s.deployment, run.Model)
		if err != nil {
			return 0, nil, err
		}
		run.Model.URI, run.Model.Revision = pool.Model, revision
		engine = s.deployment.ForPool(pool.Name).Engine
	}
	out, err := s.dryRun(ctx, f, run, engine)
	return http.StatusOK, out, err
}

// dryRun checks the lines of a file, as far as it comes in checkTime.
func (s *Service) dryRun(ctx context.Context, f record.File, c config.Run, engine config.Engine) (UploadCheck, error) {
	out := UploadCheck{FirstBad: []BadLine{}, Head: []HeadLine{}, Bytes: f.Input.Size, Complete: true}
	until := time.Now().Add(checkTime)
	tokens := int64(0)
	o := dryrun.Options{
		Each: func(_ []byte, it *dialect.Item) error {
			tokens += int64(len(it.Request)) / bytesPerToken
			if len(out.Head) < maxHeads {
				out.Head = append(out.Head, HeadLine{uint64(len(out.Head)), firstBytes(it.ID),
					firstBytes(string(it.Request[:min(len(it.Request), 200)]))})
			}
			return nil
		},
		Bad: func(line uint64, why error) {
			if len(out.FirstBad) < maxBadLines {
				out.FirstBad = append(out.FirstBad, BadLine{line, firstBytes(why.Error())})
			}
		},
		Enough: func() bool {
			enough := time.Now().After(until)
			out.Complete = out.Complete && !enough
			return enough
		},
	}
	open := func(ctx context.Context) (io.ReadCloser, error) { return s.openUpload(ctx, f, c.Input.MaxUnpacked) }
	r, err := dryrun.Check(ctx, c, engine, []dryrun.File{{Name: f.Name, Open: open}}, o)
	if err != nil {
		return out, err
	}
	out.Rows, out.BadLines, out.Duplicates, out.Dialect, out.Model = r.Items, r.Bad, r.Duplicates, r.Dialect, r.Model
	out.Tokens, out.Warnings = &tokens, r.Warnings
	return out, nil
}

// openUpload opens the content of a file, unpacked.
func (s *Service) openUpload(ctx context.Context, f record.File, limit int64) (io.ReadCloser, error) {
	r, _, err := s.ports.Blobs.Get(ctx, f.Input.Key, blob.GetOptions{Version: f.Input.Version})
	if err != nil {
		return nil, err
	}
	u, err := input.Unpack(r, f.Input.Packed)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if f.Input.Packed == "" {
		limit = math.MaxInt64
	}
	return &unpackedUpload{u, r, limit, limit}, nil
}

// unpackedUpload is the content of a file. It is Invalid if it has more bytes than the limit, as for a
// run. Closing it closes the file, too.
type unpackedUpload struct {
	content     io.ReadCloser
	file        io.Closer
	left, limit int64
}

func (u *unpackedUpload) Read(b []byte) (int, error) {
	n, err := u.content.Read(b)
	if u.left -= int64(n); u.left < 0 {
		return 0, &fault.Error{Kind: fault.Invalid, Remedy: "raise input.max_unpacked, or split it",
			Err: fmt.Errorf("the archive unpacks to more than %d bytes", u.limit)}
	}
	return n, err
}

func (u *unpackedUpload) Close() error { return errors.Join(u.content.Close(), u.file.Close()) }

// startUpload makes a run of a file: it puts its config and a copy of it under prompts/.
func (s *Service) startUpload(r *http.Request) (int, any, error) {
	ctx := r.Context()
	f, body, err := s.uploadedFile(r)
	if err != nil {
		return 0, nil, err
	}
	_, file, err := s.uploadConfig(ctx, f, body.Set)
	if err != nil {
		return 0, nil, err
	}
	stem, err := uploadStem(body.Name, f.Name)
	if err != nil {
		return 0, nil, err
	}
	for n := 1; n <= maxNames; n++ {
		name := stem
		if n > 1 {
			name = fmt.Sprintf("%s-%d", stem, n)
		}
		key, err := s.placeUpload(ctx, f, name, file)
		if fault.Is(err, fault.Conflict) { // taken
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		a, err := s.Submit(ctx, key)
		return http.StatusAccepted, struct {
			Run identity.RunID `json:"run_id"`
			Key string         `json:"key"`
		}{a.Run, a.Key}, err
	}
	return 0, nil, &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("%d files have names like %q", maxNames, stem),
		Remedy: "name another one"}
}

// uploadStem returns the name of the run, from the request or else from the file.
func uploadStem(given, file string) (string, error) {
	stem := given
	if stem == "" {
		stem = strings.TrimSuffix(file, ".json")
		if s, _, ok := input.SplitName(file); ok {
			stem = s
		}
	}
	if record.PromptsPrefix+stem+".toml" == record.PromptsPrefix+sharedConfig {
		return "", &fault.Error{Kind: fault.Invalid, Remedy: "name the run otherwise",
			Err: fmt.Errorf("the config of %q would be that of every file without a config", stem)}
	}
	return stem, input.CheckPromptsKey(record.PromptsPrefix + stem + input.Suffix(""))
}

// placeUpload copies the file, after its config, to a name under prompts/. A name that is taken is
// Conflict.
func (s *Service) placeUpload(ctx context.Context, f record.File, name string, file []byte) (key string, err error) {
	key = record.PromptsPrefix + name + input.Suffix(f.Input.Packed)
	configKey := record.PromptsPrefix + name + ".toml"
	for _, taken := range append(input.Twins(key), key, configKey) {
		_, err := s.ports.Blobs.Stat(ctx, taken, "")
		if err == nil {
			return "", fault.New(fault.Conflict, "there is %s already", taken)
		}
		if !fault.Is(err, fault.NotFound) {
			return "", err
		}
	}
	if file != nil {
		_, err := s.ports.Blobs.Put(ctx, configKey, bytes.NewReader(file), blob.PutOptions{CreateOnly: true})
		if err != nil {
			return "", err
		}
	}
	_, err = s.ports.Blobs.Copy(ctx, key, f.Input.Key)
	if err != nil && file != nil { // another file's now, or nobody's
		err = errors.Join(err, s.ports.Blobs.Delete(context.WithoutCancel(ctx), configKey, ""))
	}
	return key, err
}

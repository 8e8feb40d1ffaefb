package poolcheck

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/modelsize"
	"rollout/shared/core/servers"
	"rollout/shared/fault"
)

// DefaultHub is the address of Hugging Face's hub.
const DefaultHub = "https://huggingface.co"

const (
	maxConfig = 4 << 20
	// lookFor bounds how long a model's config is looked for.
	lookFor = 10 * time.Second

	configFile = "config.json"
	indexFile  = "model.safetensors.index.json" // has the size of the weights
)

var hubName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Models finds the configs of models: in a folder of this machine, in a bucket, or at the
// hub.
type Models struct {
	Hub    string // its address; "" is DefaultHub
	Token  string // for gated models; optional
	Client *http.Client
	// Object reads an object of a bucket; nil if buckets can't be read from here. An absent
	// object is NotFound.
	Object func(ctx context.Context, bucket, key string) ([]byte, error)
}

// FromEnvironment returns Models with the hub and the token of the variables that Hugging
// Face's own programs read.
func FromEnvironment(getenv func(string) string) Models {
	return Models{Hub: getenv("HF_ENDPOINT"), Token: getenv("HF_TOKEN")}
}

// CheckAll checks all pools of a deployment.
func (m Models) CheckAll(ctx context.Context, d config.Deployment) (reports []Report) {
	for _, p := range d.InferPools() {
		model, why := m.Find(ctx, p)
		reports = append(reports, Check(d, p, model, why))
	}
	return reports
}

// Readable reports whether a config of some pool's model may be found.
func Readable(d config.Deployment) bool {
	return slices.ContainsFunc(d.InferPools(), func(p config.Pool) bool {
		source := p.ModelSource()
		return source != config.ModelBuiltIn && (source != config.ModelOfHub || hubName.MatchString(p.HubName()))
	})
}

// Find returns what is known of a pool's model. If nothing is, why says why.
func (m Models) Find(ctx context.Context, p config.Pool) (model *modelsize.Model, why string) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	if p.Server == servers.LlamaCpp {
		return m.findGGUF(ctx, p)
	}
	var read func(name string) ([]byte, error)
	switch p.ModelSource() {
	case config.ModelBuiltIn:
		return nil, "the worker itself serves it"
	case config.ModelOfFolder:
		if _, err := os.Stat(filepath.Join(p.Model, configFile)); err != nil {
			return nil, "its folder is in the machines' image"
		}
		read = func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(p.Model, name)) }
	case config.ModelOfBucket:
		if m.Object == nil {
			return nil, "it lies in a bucket, which is not read from here: rollout cloud doctor reads it"
		}
		bucket, folder := p.ModelBucket()
		read = func(name string) ([]byte, error) { return m.Object(ctx, bucket, path.Join(folder, name)) }
	case config.ModelOfHub:
		if !hubName.MatchString(p.Model) {
			return nil, "it is not a name of the hub, such as org/model"
		}
		read = func(name string) ([]byte, error) { return m.get(ctx, p, name) }
	}
	text, err := read(configFile)
	if err != nil {
		return nil, err.Error()
	}
	found, err := modelsize.Parse(text, weightsOf(read(indexFile)))
	if err != nil {
		return nil, err.Error()
	}
	return &found, ""
}

// weightsOf returns the bytes that the index of the files of weights says, or 0. A model
// in one file has no index.
func weightsOf(index []byte, err error) float64 {
	var document struct {
		Metadata struct {
			Bytes float64 `json:"total_size"`
		}
	}
	if err != nil || json.Unmarshal(index, &document) != nil {
		return 0
	}
	return document.Metadata.Bytes
}

// OfHub reports whether the hub may have a pool's model.
func OfHub(p config.Pool) bool {
	return p.ModelSource() == config.ModelOfHub && hubName.MatchString(p.HubName())
}

// ConfigURL returns the address at the hub of the config of a pool's model.
func (m Models) ConfigURL(p config.Pool) string { return m.fileURL(p, configFile) }

func (m Models) fileURL(p config.Pool, name string) string {
	hub, revision := cmp.Or(m.Hub, DefaultHub), cmp.Or(p.Revision, "main")
	return strings.TrimSuffix(hub, "/") + "/" + p.HubName() + "/resolve/" + url.PathEscape(revision) + "/" + name
}

// get reads a file of a model from the hub.
func (m Models) get(ctx context.Context, p config.Pool, name string) ([]byte, error) {
	client := m.Client
	if client == nil {
		client = http.DefaultClient
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.fileURL(p, name), nil)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "ask the hub")
	}
	if m.Token != "" {
		r.Header.Set("Authorization", "Bearer "+m.Token)
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the hub can't be reached from here (%v)", short(err))
	}
	defer func() { _ = answer.Body.Close() }() // it is only read
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fault.New(fault.Denied, "the hub does not show its %s without a token that may: set HF_TOKEN here, and "+
			"create the secret hf-token for the machines", name)
	case http.StatusNotFound:
		return nil, fault.New(fault.NotFound, "the hub has no %s of it", name)
	default:
		return nil, fault.New(fault.Unavailable, "the hub answered %s", answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxConfig))
	return text, fault.WithKind(fault.Unavailable, err, "read %s of the hub", name)
}

// short returns the cause of a failed request, without its address.
func short(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

// Write tells people who deploy what is known of all pools: the notes, then the problems, a
// line each.
func Write(w io.Writer, reports []Report) {
	for _, note := range Notes(reports) {
		fmt.Fprintln(w, "note:", note)
	}
	for _, problem := range Problems(reports) {
		fmt.Fprintln(w, "warning: machines of the pool", problem)
	}
}

// Problems returns the problems of all pools.
func Problems(reports []Report) (lines []string) {
	for _, r := range reports {
		lines = append(lines, r.Problems...)
	}
	return lines
}

// Notes returns the notes of all pools.
func Notes(reports []Report) (lines []string) {
	for _, r := range reports {
		lines = append(lines, r.Notes...)
	}
	return lines
}

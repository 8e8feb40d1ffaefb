package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/poolcheck"
	"rollout/shared/secret"
)

// deployment returns one on AWS with a pool, and lines of [cloud].
func deployment(t *testing.T, pool, lines string) config.Deployment {
	t.Helper()
	d, err := config.ParseDeployment("rollout.toml", []byte("schema_version = 1\n[cloud]\nprovider = 'aws'\n"+
		"region = 'us-east-1'\ns3.bucket = 'acme'\n"+lines+"\n[[pool]]\nname = 'p'\n"+pool))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// told returns what a check says: what it found, why it can't be made, or what is wrong and
// what to do.
func told(found string, err error) string {
	var unseen *cloud.Unseen
	switch {
	case errors.As(err, &unseen):
		return "unseen: " + unseen.Reason
	case err != nil:
		return "wrong: " + without(err) + " → " + fault.RemedyOf(err)
	}
	return found
}

// tokens is a store with the token of the hub, or with an error instead.
type tokens struct {
	token string
	err   error
}

func (s tokens) Get(context.Context, string) (secret.Value, error) {
	return secret.NewValue(s.token), s.err
}

// scriptedHub is a hub with models that are open, gated, or without a config. The token
// "good" may read gated models, "new" has not accepted their terms.
func scriptedHub(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	refuse := func(status int, word string) {
		w.Header().Set("X-Error-Code", word)
		w.WriteHeader(status)
	}
	model, file, _ := strings.Cut(r.URL.Path, "/resolve/")
	switch {
	case r.Method != http.MethodHead || !strings.HasSuffix(file, "/config.json"):
		refuse(http.StatusBadRequest, "")
	case model == "/acme/broken":
		refuse(http.StatusBadGateway, "")
	case token != "" && token != "good" && token != "new":
		refuse(http.StatusUnauthorized, "")
	case model == "/acme/weights":
		refuse(http.StatusNotFound, "EntryNotFound")
	case model == "/acme/open" && file == "main/config.json":
	case model == "/acme/open":
		refuse(http.StatusNotFound, "RevisionNotFound")
	case token == "":
		refuse(http.StatusUnauthorized, "GatedRepo") // also of models that do not exist
	case model == "/acme/gated" && token == "new":
		refuse(http.StatusForbidden, "GatedRepo")
	case model != "/acme/gated":
		refuse(http.StatusNotFound, "RepoNotFound")
	}
}

func TestModelsAreFetchedAsMachinesDo(t *testing.T) {
	t.Parallel()
	hub := httptest.NewServer(http.HandlerFunc(scriptedHub))
	t.Cleanup(hub.Close)
	const allowed = "secrets.allowlist = ['hf-token']"
	good := tokens{token: "good"}
	for name, c := range map[string]struct {
		pool, cloud string
		secrets     secret.Store
		hub         string // default: the scripted one
		want        string
	}{
		"an open model needs no secret": {pool: "model = 'acme/open'", cloud: allowed,
			secrets: tokens{err: errors.New("it was read")}, want: "acme/open is open"},
		"a model without a config": {pool: "model = 'acme/weights'", want: "acme/weights is open"},
		"no such revision": {pool: "model = 'acme/open'\nrevision = 'v2'",
			want: "wrong: pool p: the hub has no acme/open@v2 → correct model or revision"},
		"a gated model without a token": {pool: "model = 'acme/gated'",
			want: "wrong: pool p: the hub refuses acme/gated without a token: it is gated, private or absent → " +
				"accept its terms at HUB/acme/gated, create the secret hf-token"},
		"a gated model with a token": {pool: "model = 'acme/gated'", cloud: allowed, secrets: good,
			want: "acme/gated is open to hf-token"},
		"some files of a gated model": {pool: "model = 'acme/gated:Q4_K_M'\nserver = 'llama.cpp'", cloud: allowed,
			secrets: good, want: "acme/gated:Q4_K_M is open to hf-token"},
		"some files of a gated model, without a token": {pool: "model = 'acme/gated:Q4_K_M'\nserver = 'llama.cpp'",
			want: "wrong: pool p: the hub refuses acme/gated:Q4_K_M without a token: it is gated, private or absent → " +
				"accept its terms at HUB/acme/gated, create"},
		"a token that is not valid": {pool: "model = 'acme/gated'", cloud: allowed, secrets: tokens{token: "old"},
			want: "wrong: pool p: the hub does not accept the token in the secret hf-token → put a valid token"},
		"an account that has not accepted": {pool: "model = 'acme/gated'", cloud: allowed, secrets: tokens{token: "new"},
			want: "wrong: pool p: the account of the token in the secret hf-token may not read acme/gated → ask for"},
		"a model that does not exist": {pool: "model = 'acme/none'", cloud: allowed, secrets: good,
			want: "wrong: pool p: the hub has no acme/none → correct model"},
		"a secret that may not be read": {pool: "model = 'acme/gated'", cloud: allowed,
			secrets: tokens{err: fault.New(fault.Denied, "no")},
			want:    "unseen: acme/gated needs the secret hf-token, which can't be seen with these rights"},
		"a secret that does not exist": {pool: "model = 'acme/gated'", cloud: allowed,
			secrets: tokens{err: fault.New(fault.NotFound, "no secret")}, want: "wrong: no secret"},
		"a hub that fails": {pool: "model = 'acme/broken'", want: "unseen: the hub answered 502"},
		"a model that can't be seen, before one that is absent": {
			pool: "model = 'acme/broken'\n[[pool]]\nname = 'q'\nmodel = 'acme/none'", cloud: allowed, secrets: good,
			want: "wrong: pool q: the hub has no acme/none"},
		"a hub that is away":  {pool: "model = 'acme/open'", hub: "http://127.0.0.1:1", want: "unseen: the hub can't"},
		"a model in a bucket": {pool: "model = 's3://acme/model'", want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := poolcheck.Models{Hub: hub.URL}
			if c.hub != "" {
				m.Hub = c.hub
			}
			got := told(CheckModelAccess(m, deployment(t, c.pool, c.cloud), c.secrets).Probe(t.Context()))
			want := strings.ReplaceAll(c.want, "HUB", hub.URL)
			if !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "good") {
				t.Errorf("it says %q, want %q", got, want)
			}
		})
	}
}

// scriptedRegistry has one public image. It gives everyone a token, which opens public
// images, except in the repository "locked", where it demands a password.
func scriptedRegistry(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/token":
		q := r.URL.Query()
		_, _ = fmt.Fprintf(w, `{"token": "for %s at %s"}`, q.Get("scope"), q.Get("service")) // the test sees what is missing
	case strings.HasPrefix(r.URL.Path, "/v2/locked/"):
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasPrefix(r.URL.Path, "/v2/busy/"):
		w.WriteHeader(http.StatusTooManyRequests)
	case r.URL.Path == "/v2/acme/vllm/manifests/v1" &&
		r.Header.Get("Authorization") == "Bearer for repository:acme/vllm:pull at tests" &&
		strings.Contains(r.Header.Get("Accept"), "image.index"):
	case strings.HasPrefix(r.URL.Path, "/v2/acme/vllm/") && r.Header.Get("Authorization") != "":
		w.WriteHeader(http.StatusNotFound)
	default: // also of images that do not exist
		w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="tests",scope="a"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func TestEngineImagesAreFetchedAsMachinesDo(t *testing.T) {
	t.Parallel()
	registry := httptest.NewServer(http.HandlerFunc(scriptedRegistry))
	t.Cleanup(registry.Close)
	host := strings.TrimPrefix(registry.URL, "http://")
	for image, want := range map[string]string{
		host + "/acme/vllm:v1":   host + "/acme/vllm:v1",
		host + "/acme/vllm:v2":   "wrong: the registry " + host + " has no image " + host + "/acme/vllm:v2 → correct",
		host + "/acme/none:v1":   "wrong: the registry " + host + " refuses the image " + host + "/acme/none:v1 without",
		host + "/locked/vllm:v1": "unseen: the registry " + host + " asks for an account",
		host + "/busy/vllm:v1":   "unseen: the registry " + host + " answered 429",
		"127.0.0.1:1/vllm":       "unseen: the registry 127.0.0.1:1 can't be reached from here",
	} {
		d := deployment(t, "model = 'm'\nengine_image = '"+image+"'", "")
		if got := told(CheckEngineImages(d, nil).Probe(t.Context())); !strings.HasPrefix(got, want) {
			t.Errorf("of %s it says %q, want %q", image, got, want)
		}
	}
}

func TestImagesAreNamedAsByDocker(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]reference{
		"ubuntu":                              {"https", dockerHub, "library/ubuntu", "latest"},
		"vllm/vllm-openai:v0.21.0-cu129":      {"https", dockerHub, "vllm/vllm-openai", "v0.21.0-cu129"},
		"docker.io/vllm/vllm-openai":          {"https", dockerHub, "vllm/vllm-openai", "latest"},
		"ghcr.io/ggml-org/llama.cpp:x":        {"https", "ghcr.io", "ggml-org/llama.cpp", "x"},
		"ghcr.io/a/b:x@sha256:ab":             {"https", "ghcr.io", "a/b", "sha256:ab"},
		"localhost/a":                         {"http", "localhost", "a", "latest"},
		"127.0.0.1:5000/a:1":                  {"http", "127.0.0.1:5000", "a", "1"},
		"registry.acme.org:5000/team/a/b":     {"https", "registry.acme.org:5000", "team/a/b", "latest"},
		"acme/models.cpp:latest":              {"https", dockerHub, "acme/models.cpp", "latest"},
		"1.dkr.ecr.eu-west-1.amazonaws.com/a": {"https", "1.dkr.ecr.eu-west-1.amazonaws.com", "a", "latest"},
	} {
		if got := parseReference(name); got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
}

func TestImageThatCantBeSeenHidesNoOther(t *testing.T) {
	t.Parallel()
	registry := httptest.NewServer(http.HandlerFunc(scriptedRegistry))
	t.Cleanup(registry.Close)
	host := strings.TrimPrefix(registry.URL, "http://")
	d := deployment(t, "model = 'm'\nengine_image = '"+host+"/busy/vllm:v1'\n[[pool]]\nname = 'q'\nmodel = 'n'\n"+
		"engine_image = '"+host+"/acme/vllm:v2'", "")
	got := told(CheckEngineImages(d, nil).Probe(t.Context()))
	if want := "wrong: the registry " + host + " has no image"; !strings.HasPrefix(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// A registry's demand must not lead the doctor to another scheme than the registry's.
func TestTokensComeOverTLS(t *testing.T) {
	t.Parallel()
	at := parseReference("ghcr.io/acme/vllm:1")
	for challenge, want := range map[string]string{
		`Bearer realm="https://ghcr.io/token",service="ghcr.io",scope="repository:acme/vllm:pull"`: "https://ghcr.io/token?" +
			"scope=repository%3Aacme%2Fvllm%3Apull&service=ghcr.io",
		`bearer realm="https://ghcr.io/token?a=b"`: "https://ghcr.io/token?a=b&scope=repository%3Aacme%2Fvllm%3Apull",
		`Bearer realm="http://ghcr.io/token"`:      "",
		`Bearer realm="file:///etc/passwd"`:        "",
		`Bearer service="ghcr.io"`:                 "",
		`Basic realm="https://ghcr.io"`:            "",
		"":                                         "",
	} {
		if got, ok := at.tokenURL(challenge); got != want || ok != (want != "") {
			t.Errorf("%s leads to %q, %v; want %q", challenge, got, ok, want)
		}
	}
}

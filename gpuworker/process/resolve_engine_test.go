package process_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/process"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// lists serves a list of models, and nothing else.
func lists(t *testing.T, models ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || models == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		var data []string
		for _, m := range models {
			data = append(data, fmt.Sprintf(`{"id":%q}`, m))
		}
		_, _ = fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(data, ","))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// resolve returns the pools of a deployment, as "name=model", or the error.
func resolve(t *testing.T, d config.Deployment, model string, log *slog.Logger) (pools []string, err error) {
	t.Helper()
	d, err = process.ResolveEngine(t.Context(), d, model, nil, log)
	for _, p := range d.Pools {
		pools = append(pools, p.Name+"="+p.Model)
	}
	return pools, err
}

func TestEachModelOfAServerGetsAPool(t *testing.T) {
	t.Parallel()
	many := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	for name, c := range map[string]struct {
		models  []string
		model   string // that the user names
		pools   []config.Pool
		want    []string
		wantLog string
	}{
		"one model":   {models: []string{"Qwen/Qwen2.5-0.5B"}, want: []string{"default=Qwen/Qwen2.5-0.5B"}},
		"a given one": {models: []string{"a", "b"}, model: "b", want: []string{"default=b"}},
		"several": {models: []string{"a", "org/B.1", "x/b-1", "???", "train"}, wantLog: "a, org/B.1, x/b-1, ???, train",
			want: []string{"default=a", "b-1=org/B.1", "b-1-2=x/b-1", "model-2=???", "train-2=train"}},
		"very many":      {models: many, want: []string{"default=a"}, wantLog: "declare a [[pool]]"},
		"declared pools": {models: []string{"a", "b"}, pools: []config.Pool{{Name: "p", Model: "b"}}, want: []string{"p=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			d := config.DefaultDeployment()
			d.Engine.URL, d.Pools = lists(t, c.models...), c.pools
			got, err := resolve(t, d, c.model, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil || !cmp.Equal(got, c.want) || !strings.Contains(log.String(), c.wantLog) ||
				c.wantLog == "" && log.Len() > 0 {
				t.Errorf("the pools are %v (%v), want %v; the log: %s", got, err, c.want, &log)
			}
		})
	}
}

func TestServerWithoutListNeedsTheNameOfItsModel(t *testing.T) {
	t.Parallel()
	d := config.DefaultDeployment()
	d.Engine.URL = lists(t)
	log := slog.New(slog.DiscardHandler)
	if _, err := resolve(t, d, "", log); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "--model") {
		t.Errorf("got %v, want that --model is needed", err)
	}
	if got, err := resolve(t, d, "m", log); err != nil || !cmp.Equal(got, []string{"default=m"}) {
		t.Errorf("the pools are %v (%v)", got, err)
	}
}

func TestPoolsWithTheirOwnEngineNeedNoOther(t *testing.T) {
	t.Parallel()
	d := config.DefaultDeployment()
	d.Engines = map[string]config.Engine{"hosted": {URL: "http://127.0.0.1:1/v1"}}
	d.Pools = []config.Pool{{Name: "p", Model: "m", Engine: "hosted"}}
	log := slog.New(slog.DiscardHandler)
	if got, err := resolve(t, d, "", log); err != nil || !cmp.Equal(got, []string{"p=m"}) {
		t.Errorf("the pools are %v (%v)", got, err)
	}
	d.Pools = append(d.Pools, config.Pool{Name: "tiny", Model: config.ModelTiny})
	if got, err := resolve(t, d, "", log); err != nil || !cmp.Equal(got, []string{"p=m", "tiny=rollout/tiny"}) {
		t.Errorf("beside the built-in model, the pools are %v (%v)", got, err)
	}
	d.Pools = append(d.Pools, config.Pool{Name: "other", Model: "other"})
	_, err := resolve(t, d, "", log)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "the model other") {
		t.Errorf("got %v, want that the model other has no engine", err)
	}
}

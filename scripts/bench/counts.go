package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// counts measures the requests of a run to its stores, from the product's metrics.
// Heartbeats and worker marks are left out, since they depend on the workers' time.
func counts(ctx context.Context, l *runner) error {
	in, err := l.newRunFolder(l.n, 300)
	if err != nil {
		return err
	}
	addr, err := freePort(ctx)
	if err != nil {
		return err
	}
	up, err := l.up(ctx, in, "--engine", "mock", "--listen", addr)
	if err != nil {
		return err
	}
	defer up.kill()
	if err := in.reveal(); err != nil {
		return err
	}
	shards := 0
	err = up.until(ctx, func(s runStatus) bool { shards = s.Shards.Total; return s.Phase.Ended() })
	if err != nil {
		return err
	}
	m, err := scrape(ctx, "http://"+addr+"/metrics")
	if err != nil {
		return err
	}
	if err := up.stop(); err != nil {
		return err
	}
	for name, n := range map[string]float64{
		"document-writes": m.sum("rollout_document_requests_total", func(l labels) bool {
			return slices.Contains([]string{"create", "replace", "delete"}, l["operation"]) && l["document"] != "beat" &&
				l["document"] != "worker"
		}),
		"puts":           m.sum("rollout_blob_requests_total", func(l labels) bool { return l["operation"] == "put" }),
		"queue-requests": m.sum("rollout_queue_requests_total", func(labels) bool { return true }),
		"commits":        m.sum("rollout_state_commits_total", func(labels) bool { return true }),
	} {
		if n == 0 {
			return fmt.Errorf("the metrics have no %s", name)
		}
		l.report.add("Counts", name+"/shard", n/float64(shards))
		l.report.add("Counts", name+"/sample", n/float64(in.lines))
	}
	return in.remove()
}

// freePort returns an address that is free at the moment.
func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// metrics are the metrics of a process by name.
type metrics map[string]*dto.MetricFamily

// labels are the labels of a metric.
type labels map[string]string

// scrape reads the metrics at a URL.
func scrape(ctx context.Context, url string) (metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(resp.Body)
}

// sum adds the metrics of a name whose labels match.
func (m metrics) sum(name string, match func(labels) bool) (total float64) {
	for _, metric := range m[name].GetMetric() {
		l := labels{}
		for _, pair := range metric.GetLabel() {
			l[pair.GetName()] = pair.GetValue()
		}
		if match(l) {
			total += metric.GetCounter().GetValue()
		}
	}
	return total
}

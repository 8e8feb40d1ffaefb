package gcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// runEndpoint is the address of Cloud Run's API.
const runEndpoint = "https://run.googleapis.com"

// execution is a run of a job, as Cloud Run's API describes it (google.cloud.run.v2
// Execution). Its tasks that have not ended run, or wait for a machine.
type execution struct {
	Name       string      `json:"name"` // projects/P/locations/R/jobs/J/executions/E
	Created    time.Time   `json:"createTime"`
	Completed  time.Time   `json:"completionTime"` // zero while it goes on
	Tasks      int         `json:"taskCount"`
	Running    int         `json:"runningCount"`
	Succeeded  int         `json:"succeededCount"`
	Failed     int         `json:"failedCount"`
	Cancelled  int         `json:"cancelledCount"`
	Conditions []condition `json:"conditions"`
}

// condition is a part of the state of an execution.
type condition struct {
	Type    string `json:"type"`
	State   string `json:"state"`
	Message string `json:"message"`
}

// present returns the number of tasks that run or wait.
func (e execution) present() int {
	if !e.Completed.IsZero() {
		return 0
	}
	return max(0, e.Tasks-e.Succeeded-e.Failed-e.Cancelled)
}

// started reports whether a task of the execution has ever run.
func (e execution) started() bool { return e.Running+e.Succeeded+e.Failed > 0 }

// message returns what Cloud Run says about the execution: of a condition that failed if
// there is one, else of one that is not met. It may be empty.
func (e execution) message() string {
	found := ""
	for _, c := range e.Conditions {
		switch {
		case c.Message == "":
		case c.State == "CONDITION_FAILED":
			return c.Message
		case c.State != "CONDITION_SUCCEEDED":
			found = c.Message
		}
	}
	return found
}

const (
	executionsPage = 100
	// maxExecutionPages bounds the pages that one list reads. Cloud Run keeps the last 1,000
	// executions of a job, and those of the last seven days.
	maxExecutionPages = 20
	// listedFor is how long ago an execution that still matters began: a task works for 50
	// minutes, and may wait for a machine before.
	listedFor = 24 * time.Hour
)

// job is a job of Cloud Run.
type job struct {
	client *rest
	name   string // projects/P/locations/R/jobs/J
}

// executions returns the job's executions of the last day.
func (j job) executions(ctx context.Context, now time.Time) (out []execution, err error) {
	next := ""
	for range maxExecutionPages {
		query := url.Values{"pageSize": {fmt.Sprint(executionsPage)}}
		if next != "" {
			query.Set("pageToken", next)
		}
		var page struct {
			Executions []execution `json:"executions"`
			Next       string      `json:"nextPageToken"`
		}
		at := runEndpoint + "/v2/" + j.name + "/executions?" + query.Encode()
		if err := j.client.call(ctx, http.MethodGet, at, nil, &page, "list the executions of "+j.name); err != nil {
			return nil, err
		}
		recent := false // the last one: the newest come first
		for _, e := range page.Executions {
			recent = e.Completed.IsZero() || now.Sub(e.Created) < listedFor
			if recent {
				out = append(out, e)
			}
		}
		if next = page.Next; next == "" || !recent {
			break
		}
	}
	return out, nil
}

// run starts an execution with so many tasks and returns its name, which is "" if the
// answer lacks it.
func (j job) run(ctx context.Context, tasks int) (name string, err error) {
	request := map[string]any{"overrides": map[string]any{"taskCount": tasks}}
	var operation struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	err = j.client.call(ctx, http.MethodPost, runEndpoint+"/v2/"+j.name+":run", request, &operation,
		fmt.Sprintf("run %d tasks of %s", tasks, j.name))
	return operation.Metadata.Name, err
}

// cancel ends an execution.
func (j job) cancel(ctx context.Context, execution string) error {
	return j.client.call(ctx, http.MethodPost, runEndpoint+"/v2/"+execution+":cancel", struct{}{}, nil,
		"cancel "+execution)
}

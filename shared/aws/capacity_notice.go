package aws

import (
	"encoding/json"
	"strings"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/fault"
)

// notice is a notice with an id, so that each one is delivered once.
type notice struct {
	id string
	capacity.Notice
}

const (
	// spotLead is the lead time that EC2 gives a spot instance. A longer lead in a
	// notice is cut to it, because the machine's clock may be wrong.
	spotLead = 2 * time.Minute
	// maintenanceLead is how long before its start scheduled maintenance becomes a
	// notice: EC2 announces it days ahead.
	maintenanceLead = 10 * time.Minute
)

// noticeKinds are the kinds of notice with their metadata paths and parsers. See
// the EC2 User Guide: "Spot Instance interruption notices", "rebalance
// recommendations" and "scheduled events".
var noticeKinds = []struct {
	path  string
	parse func(content []byte, now time.Time) ([]notice, error)
}{
	{"spot/instance-action", spotNotice},
	{"events/recommendations/rebalance", rebalanceNotice},
	{"events/maintenance/scheduled", maintenanceNotices},
}

// spotNotice parses {"action":"terminate","time":"2026-11-28T08:22:00Z"}.
func spotNotice(content []byte, now time.Time) ([]notice, error) {
	var action struct {
		Action string    `json:"action"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(content, &action); err != nil || action.Action == "" || action.Time.IsZero() {
		return nil, fault.New(fault.Corrupt, "the spot notice %.200q lacks an action or a time", content)
	}
	lead := min(max(0, action.Time.Sub(now)), spotLead)
	return []notice{{"spot " + action.Action, capacity.Notice{Reason: "spot", Lead: lead}}}, nil
}

// rebalanceNotice parses {"noticeTime":"2026-11-28T08:22:00Z"}. The instance has an
// elevated risk of interruption: advice, because most such instances stay for hours. The
// spot notice may follow at once, so the notice promises only its lead.
func rebalanceNotice(content []byte, _ time.Time) ([]notice, error) {
	var recommendation struct {
		NoticeTime time.Time `json:"noticeTime"`
	}
	if err := json.Unmarshal(content, &recommendation); err != nil || recommendation.NoticeTime.IsZero() {
		return nil, fault.New(fault.Corrupt, "the rebalance recommendation %.200q lacks a time", content)
	}
	return []notice{{"rebalance", capacity.Notice{Reason: "rebalance", Lead: spotLead, Advice: true}}}, nil
}

// maintenanceNotices parses the list of scheduled events. It skips events that are
// completed, canceled or more than maintenanceLead away.
func maintenanceNotices(content []byte, now time.Time) (found []notice, err error) {
	if strings.TrimSpace(string(content)) == "" {
		return nil, nil
	}
	var events []struct {
		ID        string `json:"EventId"`
		Code      string `json:"Code"`
		State     string `json:"State"`
		NotBefore string `json:"NotBefore"`
	}
	if err := json.Unmarshal(content, &events); err != nil {
		return nil, fault.New(fault.Corrupt, "the scheduled events %.200q are not a list", content)
	}
	for _, e := range events {
		if e.State != "active" {
			continue
		}
		at, parseErr := time.Parse("2 Jan 2006 15:04:05 MST", e.NotBefore)
		if parseErr != nil {
			err = fault.New(fault.Corrupt, "the scheduled event %.80q has an invalid time: %.80q", e.ID, e.NotBefore)
			continue
		}
		if lead := at.Sub(now); lead <= maintenanceLead {
			n := capacity.Notice{Reason: "maintenance", Lead: max(0, lead)}
			found = append(found, notice{"maintenance " + e.ID, n})
		}
	}
	return found, err
}

package aws

import (
	"encoding/json"
	"strings"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/fault"
)

// notice is a notice with what tells it from others.
type notice struct {
	id string
	capacity.Notice
}

const (
	// spotLead is what EC2 gives a spot instance, and the most that is believed
	// of a notice: a clock may be wrong.
	spotLead = 2 * time.Minute
	// maintenanceLead is how long before scheduled maintenance it becomes a
	// notice: it is announced days ahead.
	maintenanceLead = 10 * time.Minute
)

// notices are the kinds of notice, by the metadata that tells of them. See the
// EC2 User Guide: "Spot Instance interruption notices", "rebalance
// recommendations" and "scheduled events".
var notices = []struct {
	path  string
	parse func(content []byte, now time.Time) ([]notice, error)
}{
	{"spot/instance-action", spotNotice},
	{"events/recommendations/rebalance", rebalanceNotice},
	{"events/maintenance/scheduled", maintenanceNotices},
}

// spotNotice reads {"action":"terminate","time":"2026-11-28T08:22:00Z"}.
func spotNotice(content []byte, now time.Time) ([]notice, error) {
	var action struct {
		Action string    `json:"action"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(content, &action); err != nil || action.Action == "" || action.Time.IsZero() {
		return nil, fault.New(fault.Corrupt, "the spot notice %.200q has no action and time", content)
	}
	lead := min(max(0, action.Time.Sub(now)), spotLead)
	return []notice{{"spot " + action.Action, capacity.Notice{Reason: "spot", Lead: lead}}}, nil
}

// rebalanceNotice reads {"noticeTime":"2026-11-28T08:22:00Z"}: the instance is
// likelier to be taken than others. The notice of that may follow at once, so
// its lead is all that can be counted on.
func rebalanceNotice(content []byte, _ time.Time) ([]notice, error) {
	var recommendation struct {
		NoticeTime time.Time `json:"noticeTime"`
	}
	if err := json.Unmarshal(content, &recommendation); err != nil || recommendation.NoticeTime.IsZero() {
		return nil, fault.New(fault.Corrupt, "the rebalance recommendation %.200q has no time", content)
	}
	return []notice{{"rebalance", capacity.Notice{Reason: "rebalance", Lead: spotLead}}}, nil
}

// maintenanceNotices reads the list of scheduled events; those that are over,
// canceled or far away are no notices.
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
		return nil, fault.New(fault.Corrupt, "the scheduled events %.200q are no list", content)
	}
	for _, e := range events {
		if e.State != "active" {
			continue
		}
		at, parseErr := time.Parse("2 Jan 2006 15:04:05 MST", e.NotBefore)
		if parseErr != nil {
			err = fault.New(fault.Corrupt, "the scheduled event %.80q has no time: %.80q", e.ID, e.NotBefore)
			continue
		}
		if lead := at.Sub(now); lead <= maintenanceLead {
			found = append(found, notice{"maintenance " + e.ID, capacity.Notice{Reason: "maintenance", Lead: max(0, lead)}})
		}
	}
	return found, err
}

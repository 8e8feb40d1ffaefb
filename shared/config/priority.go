package config

import (
	"strings"

	"rollout/shared/text"
)

// Scheduling says how a run takes part in the division of its pool: the table [run].
type Scheduling struct {
	Priority *Priority `toml:"priority" json:"priority,omitempty"`
}

// Priority is the weight of a run among the open runs of its pool, from MinPriority to
// MaxPriority. Files may name one: see Priorities.
type Priority float64

// Weights of the priorities that have a name, and the bounds of those that are numbers.
const (
	PriorityLow    = 1.0
	PriorityNormal = 4.0
	PriorityHigh   = 40.0
	MinPriority    = 0.1
	MaxPriority    = 100.0
)

// Priorities are the names of priorities, from the lowest to the highest.
func Priorities() []string { return []string{"low", "normal", "high"} }

// namedPriority returns the weight of a priority with a name.
func namedPriority(name string) (weight float64, ok bool) {
	switch name {
	case "low":
		return PriorityLow, true
	case "normal":
		return PriorityNormal, true
	case "high":
		return PriorityHigh, true
	}
	return 0, false
}

// PriorityName returns the name of the priority of that weight; "" if it has none.
func PriorityName(weight float64) string {
	for _, name := range Priorities() {
		if w, _ := namedPriority(name); w == weight {
			return name
		}
	}
	return ""
}

// Weight returns the weight of the run's priority: PriorityNormal if it has none.
func (s Scheduling) Weight() float64 {
	if s.Priority == nil {
		return PriorityNormal
	}
	return float64(*s.Priority)
}

func (s Scheduling) check(c *checker, at string) {
	c.float(at+".priority", (*float64)(s.Priority), atLeast(MinPriority), atMost(MaxPriority))
}

// normalizePriority replaces the name of a priority by its weight.
func normalizePriority(c *checker, x any, at string) {
	m, ok := x.(map[string]any)
	if !ok {
		return // the binder reports it
	}
	name, ok := m["priority"].(string)
	if !ok {
		return
	}
	weight, ok := namedPriority(name)
	if ok {
		m["priority"] = weight
		return
	}
	delete(m, "priority")
	field := join(at, "priority")
	if hint := text.Nearest(Priorities(), name); hint != "" {
		c.add(field, "%s is not a valid priority; did you mean %q?", quote(name), hint)
		return
	}
	c.add(field, "%s is not a valid priority: use %s, or a number from %v to %v", quote(name),
		strings.Join(Priorities(), ", "), MinPriority, MaxPriority)
}

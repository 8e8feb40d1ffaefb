package openai

import (
	"strconv"
	"sync"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
)

// workSigns makes counters that only grow of what some servers report in other shapes.
// SGLang and llama.cpp count an answer's tokens when it ends, which says nothing of one
// that takes minutes. It is safe for concurrent use.
type workSigns struct {
	mu     sync.Mutex
	gauges float64 // SGLang's, at the last reading
	steps  float64 // changes of the gauges
	slots  map[int64]slot
	tokens float64 // of the slots
}

// slot is what llama.cpp works on at once with others.
type slot struct {
	task, decoded int64
}

// maxSlots bounds the slots that are looked at.
const maxSlots = 4096

// ofPage returns the metrics of a page in Prometheus' format.
func (w *workSigns) ofPage(page []byte) engine.ServerMetrics {
	v, gauges := parseMetrics(page)
	if gauges == 0 && v.Steps >= 0 {
		return v
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if gauges != w.gauges {
		w.gauges = gauges
		w.steps++
	}
	if w.steps > 0 && v.Steps < 0 {
		v.Steps = w.steps
	}
	return v
}

// ofSlots returns the metrics of llama.cpp's list of slots: how many work, and the
// tokens that they have generated since the first list.
func (w *workSigns) ofSlots(list []byte) engine.ServerMetrics {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := engine.UnknownMetrics()
	now := map[int64]slot{}
	running := 0.0
	err := rawjson.Elements(list, func(value []byte) error {
		id, s, works := readSlot(value)
		if id < 0 || len(now) >= maxSlots {
			return nil
		}
		if works {
			running++
		}
		before, known := w.slots[id]
		switch {
		case w.slots == nil || !known:
		case before.task == s.task && s.decoded >= before.decoded:
			w.tokens += float64(s.decoded - before.decoded)
		default:
			w.tokens += float64(s.decoded)
		}
		now[id] = s
		return nil
	})
	if err != nil || len(now) == 0 {
		return v
	}
	w.slots = now
	v.Running, v.Tokens = running, w.tokens
	return v
}

// readSlot reads one slot. Its id is negative if the value is not a slot.
func readSlot(value []byte) (id int64, s slot, works bool) {
	id = -1
	if !rawjson.IsObject(value) {
		return id, s, false
	}
	// The value is part of a list that is walked.
	_ = rawjson.Members(value, func(name, v []byte) error {
		switch string(name) {
		case "id":
			id = wholeNumber(v, -1)
		case "id_task":
			s.task = wholeNumber(v, -1)
		case "is_processing":
			works = string(v) == "true"
		case "n_decoded":
			s.decoded = wholeNumber(v, s.decoded)
		case "next_token": // an object, or a list of one
			if rawjson.IsArray(v) {
				_ = rawjson.Elements(v, func(v []byte) error { s.addDecoded(v); return nil })
			}
			s.addDecoded(v)
		}
		return nil
	})
	return id, s, works
}

func (s *slot) addDecoded(v []byte) {
	if !rawjson.IsObject(v) {
		return
	}
	_ = rawjson.Members(v, func(name, v []byte) error {
		if string(name) == "n_decoded" {
			s.decoded += wholeNumber(v, 0)
		}
		return nil
	})
}

// wholeNumber returns a whole number of at most 2^53, or else.
func wholeNumber(v []byte, or int64) int64 {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < 0 || n > 1<<53 {
		return or
	}
	return n
}

package terminal

import (
	"strings"

	"rollout/shared/figures"
)

// Bar draws a part of all as a bar of the given width, and how much of it failed: "[===xx>   ]".
func Bar(part, failed, all uint64, width int) string {
	inner := width - 2
	full, bad := 0, 0
	if all > 0 {
		full = int(min(part, all) * uint64(inner) / all)
		bad = int(min(failed, part, all) * uint64(inner) / all)
	}
	if failed > 0 && bad == 0 && full > 0 {
		bad = 1
	}
	head := ""
	if full > bad && full < inner {
		head, full = ">", full-1
	}
	return "[" + strings.Repeat("=", full-bad) + strings.Repeat("x", bad) + head +
		strings.Repeat(" ", inner-full-len(head)) + "]"
}

// Task is what a bar tells about something that takes time.
type Task struct {
	Name              string // may have colours
	Done, Failed, All uint64 // Failed are those of Done that failed; without All there is no bar
	Facts             []string
}

// Widths of the bar of a task.
const (
	leastBar    = 12
	leastBeside = 24 // beside the facts
	mostBar     = 100
)

// Lines formats a task in lines of at most that many columns:
//
//	nightly running [=====x>            ] 32%  642,000 of 2,000,000, 1,200 failed, 1,235/s, ETA 18m21s
//
// The bar takes the room that the rest leaves. Where that is too little, the facts go below the bar, and then the bar
// below the name.
func (t Task) Lines(columns int, colours Palette) []string {
	if t.All == 0 {
		return Sentence(strings.Join(append([]string{t.Name}, t.Facts...), "  "), columns)
	}
	share := figures.Percent(t.Done, t.All)
	failed := t.Failed > 0 && t.Failed >= t.Done
	if failed {
		share += " failed"
	}
	bar := func(width int) string {
		text := Bar(t.Done, t.Failed, t.All, min(width, mostBar)) + " " + share
		if failed {
			return colours.In(Red, text)
		}
		return text
	}
	facts := strings.Join(t.Facts, ", ")
	beside := columns - len(share) - 1
	if room := beside - Width(t.Name) - 1 - 2 - Width(facts); room >= leastBeside && facts != "" {
		return []string{t.Name + " " + bar(room) + "  " + facts}
	}
	var lines []string
	if room := beside - Width(t.Name) - 1; room >= leastBar {
		lines = []string{t.Name + " " + bar(room)}
	} else {
		lines = []string{Fit(t.Name, columns), bar(max(leastBar, beside))}
	}
	if facts == "" {
		return lines
	}
	for _, line := range Wrap(facts, max(leastText, columns-len(continued))) {
		lines = append(lines, continued+line)
	}
	return lines
}

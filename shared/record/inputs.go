package record

import (
	"fmt"
	"sort"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// A manifest lists a few inputs itself. Of a run of many files it has the first ones, and
// names the parts of the whole list, which are objects:
//
//	submit ─▶ work/<run>/manifest/<content id>, then run/<run>, which names them in order
//	plan   ─▶ work/<run>/plan/sources-<part>, then plan/<run>, which says where each begins
//
// A part of the list is named by its content, so that a submission that a crash ended is
// repeated without harm, also with other files: the manifest decides which parts count. Part k
// of the plan is about the inputs of part k of the list.

// Bounds of the inputs of a run.
const (
	// MaxInputs is how many files a run may have.
	MaxInputs = 100_000
	// maxInputParts is how many parts their list may have. A manifest has 80 bytes of each.
	maxInputParts = 1024
)

// InputLimits say how a list of inputs is divided.
type InputLimits struct {
	Inline      int // the most inputs that a manifest lists itself
	InlineBytes int // and the most bytes of them, as JSON
	Part        int // the most inputs of a part
	PartBytes   int // and the most bytes of them, as JSON; an input that has more is a part
	Head        int // the first inputs of a list in parts that the manifest has for people
	HeadBytes   int
}

// DefaultInputLimits are the limits of an installation: a reader of a part holds about 1 MB.
func DefaultInputLimits() InputLimits {
	return InputLimits{Inline: 256, InlineBytes: 64 << 10, Part: 512, PartBytes: 128 << 10, Head: 16, HeadBytes: 16 << 10}
}

// InputList is the list of the inputs of a run of many files.
type InputList struct {
	Run   identity.RunID `json:"run"` // whose parts these are: the oldest ancestor of a child
	Count int            `json:"count"`
	Size  int64          `json:"size"` // bytes of all inputs
	// Packed says that an input is packed.
	Packed bool            `json:"packed,omitempty"`
	Parts  []InputListPart `json:"parts"`
}

// InputListPart names a part of a list.
type InputListPart struct {
	First   int    `json:"first"`   // number of its first input
	Content string `json:"content"` // content id of the object, in hex
}

// InputPart is the object of a part of a list.
type InputPart struct {
	Schema int     `json:"schema"`
	First  int     `json:"first"`
	Inputs []Input `json:"inputs"`
}

// InputPartKey returns the key of an InputPart with that content.
func InputPartKey(r identity.RunID, content string) string {
	return fmt.Sprintf("%s%s/manifest/%s", WorkPrefix, r, content)
}

// JudgeInput returns the number of the appended object that has the lines of a judge, by its number
// among the run's judges: they are behind the inputs, and behind the trials of a run of these.
func (m Manifest) JudgeInput(judge int) int {
	if m.Kind == config.KindTrials {
		judge++
	}
	return m.InputCount() + judge
}

// InputCount returns the number of the run's inputs.
func (m Manifest) InputCount() int {
	if m.List != nil {
		return m.List.Count
	}
	return len(m.Inputs)
}

// AnyPacked reports whether an input of the run is packed.
func (m Manifest) AnyPacked() bool {
	if m.List != nil {
		return m.List.Packed
	}
	for _, in := range m.Inputs {
		if in.Packed != "" {
			return true
		}
	}
	return false
}

// PartOf returns the number of the part that lists an input, and its first input.
func (l InputList) PartOf(input int) (part, first int) {
	part = sort.Search(len(l.Parts), func(k int) bool { return l.Parts[k].First > input }) - 1
	return part, l.Parts[part].First
}

func (l InputList) partEnd(part int) int {
	if part+1 < len(l.Parts) {
		return l.Parts[part+1].First
	}
	return l.Count
}

// Check returns Corrupt unless the part of the list has its inputs.
func (l InputList) Check(part int, p InputPart) error {
	first := l.Parts[part].First
	if p.First != first || len(p.Inputs) != l.partEnd(part)-first {
		return fault.New(fault.Corrupt, "part %d of the input list of run %s has %d inputs from %d on", part, l.Run,
			len(p.Inputs), p.First)
	}
	return nil
}

// CheckInputs returns Invalid for more inputs than a run may have, or names of them that are
// too long together.
func CheckInputs(inputs []Input) error {
	refuse := func(format string, args ...any) error {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf(format, args...),
			Remedy: "join them into fewer, larger files, or make several runs of them"}
	}
	if len(inputs) > MaxInputs {
		return refuse("%d files are too many for one run: at most %d are allowed", len(inputs), MaxInputs)
	}
	if parts := splitInputs(inputs, DefaultInputLimits()); len(parts) > maxInputParts {
		return refuse("%d files are too many for one run: their names make a list of %d parts of %d KB, at most %d are "+
			"allowed", len(inputs), len(parts), DefaultInputLimits().PartBytes>>10, maxInputParts)
	}
	return nil
}

// SplitInputs divides the inputs of a manifest that has many. The parts are to be written,
// each at InputPartKey of its encoding's content id, before the manifest that is returned; a
// manifest of few inputs comes back as it is, without parts.
func SplitInputs(m Manifest, l InputLimits) (Manifest, []InputPart) {
	if m.List != nil || countFitting(m.Inputs, l.Inline, l.InlineBytes) == len(m.Inputs) {
		return m, nil
	}
	parts := splitInputs(m.Inputs, l)
	m.Schema = SchemaParts
	m.List = &InputList{Run: m.Run, Count: len(m.Inputs), Packed: m.AnyPacked()}
	for _, p := range parts {
		content := identity.Content(Encode(p)).String()
		m.List.Parts = append(m.List.Parts, InputListPart{First: p.First, Content: content})
	}
	for _, in := range m.Inputs {
		m.List.Size += in.Size
	}
	m.Inputs = m.Inputs[:countFitting(m.Inputs, l.Head, l.HeadBytes)]
	return m, parts
}

// splitInputs divides inputs into parts of at least one.
func splitInputs(inputs []Input, l InputLimits) (parts []InputPart) {
	for first := 0; first < len(inputs); {
		n := max(1, countFitting(inputs[first:], l.Part, l.PartBytes))
		parts = append(parts, InputPart{Schema: Schema, First: first, Inputs: inputs[first : first+n]})
		first += n
	}
	return parts
}

// countFitting returns how many of the first inputs are within both bounds.
func countFitting(inputs []Input, most, bytes int) int {
	for n, in := range inputs[:min(len(inputs), most)] {
		if bytes -= len(Encode(in)) + len(","); bytes < 0 {
			return n
		}
	}
	return min(len(inputs), most)
}

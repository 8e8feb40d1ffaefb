package trials

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"rollout/shared/config"
	"rollout/shared/core/design"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
	"rollout/shared/text"
)

// Trial is the member "trial" of a trial's line: what the trial is.
type Trial struct {
	Index       uint64 `json:"schedule_idx"` // of the schedule: its item index
	Slot        uint64 `json:"slot"`         // by task, variant and replication, whatever the order is
	ID          string `json:"trial_id"`     // Example: "t12.terse.r3", of the thirteenth task
	Task        string `json:"task"`         // the task's id
	Variant     string `json:"variant"`
	Replication int    `json:"replication"` // from 0
	// Chain is the number of the task's chain, from 1 on; 0 if it belongs to none.
	Chain uint32 `json:"chain,omitempty"`
}

// asker writes the lines of a run's trials.
type asker struct {
	seed     uint64
	variants []asking
}

// asking is a variant.
type asking struct {
	config.Variant
	system, prompt     text.Template
	inSystem, inPrompt []string // the members of a task that the templates show
	params             []byte   // of the request, as members of a line, with a comma before each; "" for none
}

func newAsker(c config.Run) *asker {
	a := &asker{seed: uint64(c.DesignOf().Seed)}
	for _, v := range c.Variants {
		prompt := cmp.Or(v.Prompt, config.DefaultPrompt)
		of := asking{Variant: v, inSystem: config.Members(v.System), inPrompt: config.Members(prompt)}
		of.system, of.prompt = template(v.System, of.inSystem), template(prompt, of.inPrompt)
		if v.Sampling != nil {
			if own := v.Sampling.Canonical(); len(own) > len("{}") {
				of.params = append([]byte{','}, own[1:len(own)-1]...)
			}
		}
		a.variants = append(a.variants, of)
	}
	return a
}

// template returns the template of a text with these placeholders.
func template(s string, names []string) text.Template {
	if len(names) == 0 {
		names = []string{config.PlacePrompt} // text.ParseTemplate wants a name: s has no placeholder
	}
	return text.ParseTemplate(s, names)
}

// messages returns the JSON of the messages that ask about a task. Its errors are Invalid.
func (v asking) messages(t Task) ([]byte, error) {
	shown := v.inSystem
	switch {
	case t.Messages == nil:
		shown = slices.Concat(shown, v.inPrompt)
	case v.Prompt != "":
		return nil, fault.New(fault.Invalid, "it has messages, and the variant %s has a prompt in their place: remove one",
			v.Name)
	}
	values := map[string]string{}
	for _, name := range shown {
		value, ok := t.text(name)
		if !ok {
			return nil, fault.New(fault.Invalid, "it has no member %q, which the messages of the variant %s show", name, v.Name)
		}
		values[name] = value
	}
	size := len(t.Messages) + v.system.Size(values) + v.prompt.Size(values)
	if size > maxRequest { // before it is rendered
		return nil, tooLong(size)
	}
	b := []byte{'['}
	if v.System != "" {
		b = append(b, `{"role":"system","content":`...)
		b = append(jsonl.AppendQuoted(b, v.system.Render(values)), '}')
	}
	if t.Messages != nil {
		own := bytes.TrimSuffix(bytes.TrimPrefix(t.Messages, []byte("[")), []byte("]"))
		if len(own) == len(t.Messages) {
			return nil, fault.New(fault.Invalid, "its messages are not a list")
		}
		if len(own) == 0 {
			return nil, fault.New(fault.Invalid, "its messages are an empty list: give at least one")
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		return append(append(b, own...), ']'), nil
	}
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(b, `{"role":"user","content":`...)
	return append(jsonl.AppendQuoted(b, v.prompt.Render(values)), '}', ']'), nil
}

// maxRequest bounds the bytes of a trial's line, far below what a line may have.
const maxRequest = 4 << 20

func tooLong(size int) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.TooLong,
		Err: fault.New(fault.Invalid, "its request has %d bytes, at most %d are allowed", size, maxRequest)}
}

// check returns why a task cannot be asked under one of the variants. Its errors are Invalid.
func (a *asker) check(t Task) error {
	for v := range a.variants {
		messages, err := a.variants[v].messages(t)
		if err != nil {
			return err
		}
		line := a.appendLine(nil, t, messages, Trial{ID: "any", Variant: a.variants[v].Name}, v)
		if len(line) > maxRequest {
			return tooLong(len(line))
		}
		if _, err := dialect.Parse(dialect.Plain, line); err != nil {
			return fault.WithKind(fault.Invalid, err, "its request under the variant %s is refused", a.variants[v].Name)
		}
	}
	return nil
}

// trial returns the trial at a place of the schedule.
func (a *asker) trial(d design.Design, index int, p design.Place, t Task, chain uint32) Trial {
	name := a.variants[p.Variant].Name
	return Trial{Index: uint64(index), Slot: uint64(d.Slot(p)), ID: fmt.Sprintf("t%d.%s.r%d", p.Task, name, p.Replication),
		Task: t.ID, Variant: name, Replication: p.Replication, Chain: chain}
}

// appendLine appends the line of a trial.
func (a *asker) appendLine(dst []byte, t Task, messages []byte, of Trial, variant int) []byte {
	dst = jsonl.AppendQuoted(append(dst, `{"id":`...), of.ID)
	dst = append(append(dst, `,"messages":`...), messages...)
	dst = append(dst, a.variants[variant].params...)
	dst = fmt.Appendf(dst, `,"seed":%d,"trial":`, design.SeedOf(a.seed, t.ID, of.Variant, of.Replication))
	dst = append(append(dst, encode(of)...), `,"task":`...)
	return append(append(dst, t.Rest...), '}', '\n')
}

// encode returns v as JSON. Text in it stays readable: < and & need no escapes outside of HTML.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // the types of this package encode
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// readTrial returns the member "trial" of a line, or of an output row that repeats it. A line
// without it is Corrupt: lines are the run's own.
func readTrial(line []byte) (t Trial, err error) {
	o := jsonl.ReadKnownObject(line)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if string(m.Name) == "trial" {
			return t, fault.WithKind(fault.Corrupt, json.Unmarshal(m.Value, &t), "read the trial of a line")
		}
	}
	return t, fault.New(fault.Corrupt, "a line is not that of a trial")
}

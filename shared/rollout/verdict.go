package rollout

import (
	"encoding/json"
	"regexp"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/jsonl"
	"rollout/shared/jsonschema"
)

// Parser reads the verdict from the text of an answer. It is safe for concurrent use.
type Parser struct {
	format  config.Answer
	pattern *regexp.Regexp
	schema  *jsonschema.Schema
}

// NewParser returns the parser of an answer format. One that the config's check refuses is
// Invalid.
func NewParser(f config.Answer) (p Parser, err error) {
	p.format = f
	if f.Pattern != "" {
		if p.pattern, err = regexp.Compile(f.Pattern); err != nil {
			return p, fault.WithKind(fault.Invalid, err, "answer.pattern")
		}
	}
	if f.Schema != "" {
		if p.schema, err = jsonschema.Compile(f.Schema); err != nil {
			return p, fault.WithKind(fault.Invalid, err, "answer.schema")
		}
	}
	return p, nil
}

const (
	// maxVerdict bounds the bytes of a verdict: a longer text does not count.
	maxVerdict = 512
	// maxMatches bounds how often an answer may match the pattern: one with more says no
	// verdict. All matches of one answer are in memory.
	maxMatches = 10_000
)

// Verdict returns the verdict that an answer's text says, normalised, and false if it
// says none that counts.
func (p Parser) Verdict(answer string) (string, bool) {
	verdict, ok := answer, true
	switch {
	case p.pattern != nil:
		verdict, ok = p.matched(answer)
	case p.schema != nil:
		verdict, ok = p.member(answer)
	}
	verdict = p.Normalize(verdict)
	if !ok || verdict == "" || len(verdict) > maxVerdict || !p.counts(verdict) {
		return "", false
	}
	return verdict, true
}

// matched returns the first group of the pattern's last match, or the whole match of a
// pattern without groups.
func (p Parser) matched(answer string) (string, bool) {
	all := p.pattern.FindAllStringSubmatch(answer, maxMatches+1)
	if len(all) == 0 || len(all) > maxMatches {
		return "", false
	}
	last := all[len(all)-1]
	return last[min(1, len(last)-1)], true
}

// member returns the verdict in an answer that is JSON, which the schema accepts.
func (p Parser) member(answer string) (string, bool) {
	if !p.schema.Accepts(answer) {
		return "", false
	}
	value := grade.Lookup([]byte(answer), p.format.Member)
	if value == nil || value[0] == '{' || value[0] == '[' {
		return "", false
	}
	if text, ok := jsonl.Unquote(nil, value); ok {
		return string(text), true
	}
	return string(json.RawMessage(value)), true
}

// Normalize returns a verdict or a label as they are compared: without white space around
// it, and in lower case if case does not count.
func (p Parser) Normalize(s string) string {
	s = strings.TrimSpace(s)
	if p.format.IgnoreCase {
		s = strings.ToLower(s)
	}
	return s
}

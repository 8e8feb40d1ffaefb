package command

import (
	"bytes"
	"strings"
)

// A config that --set has changed holds for one run, and yet lies in the bucket under the name of the prompts file,
// where the run's function finds it. It begins with oneRunHead. What the next submission of the file starts from
// follows as a comment: the config that was in the bucket, or would be without --set.
const (
	oneRunHead = "# `rollout submit --set` wrote this for one run. The next submission of the file doesn't take it.\n"
	beforeHead = "# It starts from this:\n"
	beforeLine = "#| "
)

// oneRunConfig returns the config with such a head. before is nil if the next submission starts without a config of the
// file's name.
func oneRunConfig(config, before []byte) []byte {
	var out bytes.Buffer
	out.WriteString(oneRunHead)
	if before != nil {
		out.WriteString(beforeHead)
		for line := range bytes.Lines(before) {
			out.WriteString(beforeLine)
			out.Write(line)
			if !bytes.HasSuffix(line, []byte("\n")) {
				out.WriteByte('\n')
			}
		}
	}
	out.WriteByte('\n')
	out.Write(config)
	return out.Bytes()
}

// beforeOneRun returns what the next submission starts from, nil for nothing. one is false if the config does not hold
// for one run alone.
func beforeOneRun(config []byte) (before []byte, one bool) {
	rest, one := strings.CutPrefix(string(config), oneRunHead)
	if !one {
		return nil, false
	}
	rest, has := strings.CutPrefix(rest, beforeHead)
	if !has {
		return nil, true
	}
	before = []byte{}
	for line := range strings.Lines(rest) {
		text, is := strings.CutPrefix(line, beforeLine)
		if !is {
			break
		}
		before = append(before, text...)
	}
	return before, true
}

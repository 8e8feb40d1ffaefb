package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// A config that --set has changed holds for one run, and yet lies in the bucket under the
// name of the prompts file, where submit finds it. It begins with a comment that says so and
// how large that file is: an upload of another size, without --set, is not that run. What
// counts for others follows in the comment: the config that was in the bucket, or would be.
const (
	oneRunBegin  = "# `rollout submit --set` wrote this for one run, of a file of "
	oneRunEnd    = " bytes. Other runs don't take it.\n"
	oneRunBefore = "# They take this:\n"
	oneRunLine   = "#| "
)

// OneRun is what the comment of a config for one run says.
type OneRun struct {
	Size   int64  // of the prompts file, in bytes
	Before []byte // the config of the file's name for other runs; nil for none
}

// Write returns the config with the comment.
func (o OneRun) Write(config []byte) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s%d%s", oneRunBegin, o.Size, oneRunEnd)
	if o.Before != nil {
		out.WriteString(oneRunBefore)
		for line := range bytes.Lines(o.Before) {
			out.WriteString(oneRunLine)
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

// ReadOneRun reads the comment; false if the config has none.
func ReadOneRun(config []byte) (OneRun, bool) {
	rest, ok := strings.CutPrefix(string(config), oneRunBegin)
	number, rest, found := strings.Cut(rest, oneRunEnd)
	size, err := strconv.ParseInt(number, 10, 64)
	if !ok || !found || err != nil {
		return OneRun{}, false
	}
	o := OneRun{Size: size}
	rest, has := strings.CutPrefix(rest, oneRunBefore)
	if !has {
		return o, true
	}
	o.Before = []byte{}
	for line := range strings.Lines(rest) {
		text, is := strings.CutPrefix(line, oneRunLine)
		if !is {
			break
		}
		o.Before = append(o.Before, text...)
	}
	return o, true
}

package servers

import (
	"regexp"
	"strings"
)

// maxCause bounds the text of Cause.
const maxCause = 400

var (
	// troubles are lines that say what is wrong: the end of a Python traceback, llama.cpp's
	// and Docker's errors.
	troubles = regexp.MustCompile(`(?i)\b([a-z]*(error|exception)\b|fatal|failed|out of memory|denied|no space left|` +
		`not found|unauthorized|invalid|unrecognized)`)
	// follows are errors that only report that another one happened before.
	follows = regexp.MustCompile(`(?i)(see root cause|engine core (proc|initialization).*failed|traceback|` +
		`main process exited|failed with result|start request repeated|scheduler hit an exception|` +
		`rank 0 scheduler is dead)`)
	// prefix is what servers and the journal put before a message: a process, a level, a
	// time, a source file.
	prefix = regexp.MustCompile(`^(\([^()]*\) *|(ERROR|CRITICAL|FATAL|WARNING)[: ]+|` +
		`\[?\d{2,4}[-/]\d{2}([-/]\d{2})?[ T][\d:.,]+\]? *|\[[a-z_]+\.(py|cc|cu):\d+\] *)+`)
)

// Cause returns the line of a server's log that most likely says why it ended: the last
// one that reports an error of its own, else the last one with text. It has at most 400
// bytes, and no control characters.
func Cause(log string) string {
	last, trouble := "", ""
	for line := range strings.SplitSeq(log, "\n") {
		line = clean(line)
		if line == "" || strings.HasPrefix(line, "File \"") {
			continue
		}
		last = line
		if troubles.MatchString(line) && !follows.MatchString(line) {
			trouble = line
		}
	}
	if trouble != "" {
		return trouble
	}
	return last
}

// clean returns a line without colours, control characters and what the log puts before
// the message.
func clean(line string) string {
	line = colours.ReplaceAllString(line, "")
	line = strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < ' ' || r == 0x7f:
			return -1
		}
		return r
	}, strings.ToValidUTF8(line, ""))
	line = strings.TrimSpace(prefix.ReplaceAllString(strings.TrimSpace(line), ""))
	if len(line) > maxCause {
		line = strings.ToValidUTF8(line[:maxCause], "")
	}
	return line
}

var colours = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// positions maps a field's path to its line. The TOML library reports lines of
// syntax errors only, so scan finds the line of every key.
type positions map[string]int

// of returns the line of the field. For a missing field it returns the line of
// the nearest enclosing table, or 0.
func (p positions) of(field string) int {
	for field != "" {
		if line, ok := p[field]; ok {
			return line
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return 0
}

// Bounds of a source, checked before the TOML library parses it: the library
// takes time and memory quadratic in them. Real configs stay far below.
const (
	maxNesting = 16     // tables in tables, lists in lists, parts of a dotted key
	maxPath    = 256    // bytes of a key with its enclosing tables
	maxKeys    = 10_000 // keys and list elements
)

// scanner walks TOML source. It finds the exact lines of valid source. For
// invalid source it only guarantees to end: it always moves forward, and stops
// at the first exceeded bound.
type scanner struct {
	src    []byte
	i      int
	line   int
	found  positions
	arrays map[string]int // number of tables seen of each [[array]]
	excess excess
}

// excess says where the source first exceeds a bound, and which. Line is 0 if it
// stays within all bounds.
type excess struct {
	line int
	why  string
}

// scan returns the line of every key, and whether the source exceeds a bound.
func scan(src []byte) (positions, excess) {
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	s := &scanner{src: src, line: 1, found: positions{}, arrays: map[string]int{}}
	table := ""
	for s.skip(" \t\r\n#"); s.i < len(s.src); s.skip(" \t\r\n#") {
		if s.take('[') {
			table = s.header()
			continue
		}
		s.pair(table, 0)
	}
	return s.found, s.excess
}

// header reads the rest of [a.b] or [[a.b]] and returns the table's path.
func (s *scanner) header() string {
	line, array := s.line, s.take('[')
	parts, path := s.key(), ""
	for i, part := range parts {
		path = join(path, part)
		if array && i == len(parts)-1 {
			s.arrays[path]++
		}
		if n := s.arrays[path]; n > 0 {
			path = element(path, n-1)
		}
		s.record(path, line)
	}
	for s.take(']') {
	}
	return path
}

// pair reads one key = value of a table.
func (s *scanner) pair(table string, depth int) {
	start, line := s.i, s.line
	path := table
	for _, part := range s.key() {
		path = join(path, part)
		s.record(path, line)
	}
	s.skip(" \t")
	if s.take('=') {
		s.value(path, depth)
	}
	if s.i == start {
		s.i++
	}
}

func (s *scanner) value(path string, depth int) {
	if depth > maxNesting {
		s.nested()
		return
	}
	s.skip(" \t")
	switch {
	case s.take('['):
		for n := 0; s.inside(']'); n++ {
			at := element(path, n)
			s.record(at, s.line)
			s.value(at, depth+1)
		}
	case s.take('{'):
		for s.inside('}') {
			s.pair(path, depth+1)
		}
	case s.peek() == '"' || s.peek() == '\'':
		s.text()
	default:
		for s.i < len(s.src) && strings.IndexByte(",]}\n#", s.src[s.i]) < 0 {
			s.i++
		}
	}
}

// inside moves to the next element of an array or inline table and reports
// whether there is one.
func (s *scanner) inside(end byte) bool {
	s.skip(" \t\r\n#,")
	if s.i == len(s.src) || s.take(end) {
		return false
	}
	if strings.IndexByte("]}=", s.src[s.i]) >= 0 { // invalid TOML, which the parser reports
		s.i = len(s.src)
		return false
	}
	return true
}

// key reads a dotted key.
func (s *scanner) key() (parts []string) {
	for {
		s.skip(" \t")
		start := s.i
		switch s.peek() {
		case '"', '\'':
			parts = append(parts, s.text())
		default:
			for s.i < len(s.src) && strings.IndexByte("=.]} \t\r\n#,[{\"'", s.src[s.i]) < 0 {
				s.i++
			}
			parts = append(parts, string(s.src[start:s.i]))
		}
		if len(parts) > maxNesting {
			s.nested()
		}
		s.skip(" \t")
		if !s.take('.') {
			return parts
		}
	}
}

// text reads a string in any of TOML's four forms. It returns the source between
// the quotes, without resolving escapes.
func (s *scanner) text() string {
	quote := s.src[s.i : s.i+1]
	delimiter := quote
	if long := bytes.Repeat(quote, 3); bytes.HasPrefix(s.src[s.i:], long) {
		delimiter = long
	}
	s.i += len(delimiter)
	start := s.i
	for ; s.i < len(s.src); s.i++ {
		switch {
		case s.src[s.i] == '\n':
			if len(delimiter) == 1 { // unterminated, which the parser reports
				return string(s.src[start:s.i])
			}
			s.line++
		case s.src[s.i] == '\\' && quote[0] == '"':
			s.i++
			if s.i < len(s.src) && s.src[s.i] == '\n' {
				s.line++
			}
		case bytes.HasPrefix(s.src[s.i:], delimiter):
			end := s.i
			s.i += len(delimiter)
			for len(delimiter) == 3 && s.peek() == quote[0] { // up to two quotes may belong to the text
				s.i++
			}
			return string(s.src[start:end])
		}
	}
	s.i = len(s.src)
	return string(s.src[start:])
}

// skip moves past the characters of set. A '#' in set skips whole comments.
func (s *scanner) skip(set string) {
	for s.i < len(s.src) && strings.IndexByte(set, s.src[s.i]) >= 0 {
		switch s.src[s.i] {
		case '\n':
			s.line++
		case '#':
			if end := bytes.IndexByte(s.src[s.i:], '\n'); end >= 0 {
				s.i += end
			} else {
				s.i = len(s.src)
			}
			continue
		}
		s.i++
	}
}

func (s *scanner) peek() byte {
	if s.i < len(s.src) {
		return s.src[s.i]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.i < len(s.src) && s.src[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *scanner) record(path string, line int) {
	_, known := s.found[path]
	switch {
	case len(path) > maxPath:
		s.stop("a key and its enclosing tables have more than %d bytes: shorten them", maxPath)
	case known:
	case len(s.found) == maxKeys:
		s.stop("the file has more than %d keys and list elements: is it the right file?", maxKeys)
	default:
		s.found[path] = line
	}
}

func (s *scanner) nested() {
	s.stop("tables, lists or dotted keys are nested more than %d deep: flatten them", maxNesting)
}

func (s *scanner) stop(format string, bound int) {
	if s.excess.line == 0 {
		s.excess = excess{s.line, fmt.Sprintf(format, bound)}
	}
	s.i = len(s.src)
}

// join returns the path of a key in a table. It quotes a key that is not a bare
// key of TOML.
func join(table, key string) string {
	for i := range len(key) {
		c := key[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			key = strconv.Quote(key)
			break
		}
	}
	if table == "" {
		return key
	}
	return table + "." + key
}

func element(array string, n int) string { return array + "[" + strconv.Itoa(n) + "]" }

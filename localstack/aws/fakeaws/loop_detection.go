package fakeaws

import (
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// longestChain is the longest chain of invocations that one event may cause.
// Lambda counts the invocations of one function. This package counts all, which is
// stricter.
const longestChain = 16

// traceHeader is the header with which the SDKs in a function pass on the chain.
const traceHeader = "X-Amzn-Trace-Id"

// lineage counts the invocations of a chain by function.
type lineage map[string]int

// readLineage reads the header's part "Lineage=a87bd80c:1|68fd508a:5".
func readLineage(header string) lineage {
	l := lineage{}
	if decoded, err := url.PathUnescape(header); err == nil {
		header = decoded
	}
	for part := range strings.SplitSeq(header, ";") {
		list, ok := strings.CutPrefix(strings.TrimSpace(part), "Lineage=")
		if !ok {
			continue
		}
		for entry := range strings.SplitSeq(list, "|") {
			if name, count, ok := strings.Cut(entry, ":"); ok {
				n, _ := strconv.Atoi(count)
				l[name] += n
			}
		}
	}
	return l
}

// add counts an invocation of a function.
func (l lineage) add(function string) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(function)) // a hash's Write never fails
	l[fmt.Sprintf("%08x", h.Sum32())]++
}

// length is the number of invocations of the chain.
func (l lineage) length() (n int) {
	for _, count := range l {
		n += count
	}
	return n
}

// header is the header that a function gets and passes on.
func (l lineage) header() string {
	var parts []string
	for name, count := range l {
		parts = append(parts, fmt.Sprintf("%s:%d", name, count))
	}
	slices.Sort(parts)
	return "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=3995c3f42cd8ad8f;Sampled=0;Lineage=" + strings.Join(parts, "|")
}

// longer returns the header of the longer chain.
func longer(a, b string) string {
	if readLineage(b).length() > readLineage(a).length() {
		return b
	}
	return a
}

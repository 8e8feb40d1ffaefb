package api

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/text"
)

// maxAnswer bounds the body of every answer, in bytes. Lists are cut at pageBytes, which leaves
// room for what is around them.
const (
	maxAnswer = 64 << 10
	pageBytes = 56 << 10
)

// encode returns the body as JSON of at most limit bytes. One that is longer loses the ends of its
// longest strings and lists, until it fits, and says "shortened": true. This is the last resort
// for ids, names and messages of any length: what may be long by nature has pages.
func encode(body any, limit int) ([]byte, error) {
	b, _, err := encodeShort(body, limit)
	return b, err
}

// encodeShort is encode, and reports whether the body was shortened.
func encodeShort(body any, limit int) (b []byte, short bool, err error) {
	if b, err = json.Marshal(body); err != nil {
		return nil, false, fault.WithKind(fault.Internal, err, "encode an answer")
	}
	if len(b) <= limit {
		return b, false, nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, true, fault.WithKind(fault.Internal, err, "shorten an answer")
	}
	for size := 16 << 10; size >= 4; size /= 4 {
		v = cut(v, size, max(1, size/64))
		if o, ok := v.(map[string]any); ok {
			o["shortened"] = true
		}
		if b, err = json.Marshal(v); err != nil || len(b) <= limit {
			return b, true, fault.WithKind(fault.Internal, err, "shorten an answer")
		}
	}
	return nil, true, fault.New(fault.Internal, "an answer of %d bytes can't be shortened", len(b))
}

// firstBytes returns the begin of a text for which an answer has little room.
func firstBytes(s string) string { return text.Truncate(s, itemText, "…") }

// What objects keep at the least: members, members that are all numbers, and bytes of a name. Our
// own objects have fewer; those with more are maps of what users and servers name, such as counts.
const (
	minMembers = 64
	minCounts  = 12
	minName    = 40
)

// cut cuts the strings of a JSON value at a number of bytes, and its lists and objects at a number
// of members.
func cut(v any, bytesOf, members int) any {
	switch v := v.(type) {
	case string:
		return text.Truncate(v, bytesOf, "…")
	case []any:
		out := v[:min(len(v), members)]
		for i := range out {
			out[i] = cut(out[i], bytesOf, members)
		}
		return out
	case map[string]any:
		most := max(minMembers, members)
		if areCounts(v) {
			most = max(minCounts, members)
		}
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if len(out) < most {
				out[text.Truncate(name, max(minName, bytesOf), "…")] = cut(v[name], bytesOf, members)
			}
		}
		return out
	}
	return v
}

func areCounts(o map[string]any) bool {
	for _, v := range o {
		if _, ok := v.(json.Number); !ok {
			return false
		}
	}
	return true
}

// fitting returns how many of the values fit into a number of bytes, as JSON. A value that is
// longer than maxOne is shortened to it.
func fitting[T any](values []T, bytesOf, maxOne int) (out []json.RawMessage, err error) {
	out = []json.RawMessage{}
	for _, v := range values {
		b, err := encode(v, maxOne)
		if err != nil {
			return nil, err
		}
		if bytesOf -= len(b) + 1; bytesOf < 0 {
			break
		}
		out = append(out, b)
	}
	return out, nil
}

// write answers with a body. A client that has the body already, as its If-None-Match says, gets
// 304.
func write(w http.ResponseWriter, r *http.Request, code int, body any) {
	b, err := encode(body, maxAnswer-1)
	if err != nil {
		listen.WriteError(w, statusCode(err), fault.KindOf(err).String(), err.Error())
		return
	}
	if code == http.StatusOK && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		tag := `W/"` + identity.Content(b).String()[:32] + `"`
		w.Header().Set("ETag", tag)
		if has(r.Header.Get("If-None-Match"), tag) {
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	listen.WriteRaw(w, code, b)
}

// has reports whether a header If-None-Match names the tag.
func has(header, tag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimSpace(one); one != "" && strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

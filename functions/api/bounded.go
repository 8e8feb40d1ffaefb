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
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fault.WithKind(fault.Internal, err, "encode an answer")
	}
	if len(b) <= limit {
		return b, nil
	}
	for size := 16 << 10; size >= 4; size /= 2 {
		short, err := shorten(b, size, max(1, size/64))
		if err != nil || len(short) <= limit {
			return short, err
		}
	}
	return nil, fault.New(fault.Internal, "an answer of %d bytes can't be shortened", len(b))
}

// shorten cuts the strings of a JSON document at a number of bytes, and its lists and objects at a
// number of members.
func shorten(b []byte, bytesOf, members int) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fault.WithKind(fault.Internal, err, "shorten an answer")
	}
	v = cut(v, bytesOf, members)
	if o, ok := v.(map[string]any); ok {
		o["shortened"] = true
	}
	out, err := json.Marshal(v)
	return out, fault.WithKind(fault.Internal, err, "shorten an answer")
}

// minMembers is how many members an object keeps, at the least: those of our own documents are not
// cut, only maps of what users and servers name.
const minMembers = 64

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
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if len(out) < max(minMembers, members) {
				out[text.Truncate(name, max(minMembers, bytesOf), "…")] = cut(v[name], bytesOf, members)
			}
		}
		return out
	}
	return v
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

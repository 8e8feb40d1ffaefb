package fakeaws

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// partSizes are the sizes of uploaded parts, by upload and part number.
type partSizes struct {
	mu      sync.Mutex
	uploads map[string]map[int]int64
}

const leastPart = 5 << 20 // bytes of a part that is not the last one

// note records the size of a part that is uploaded or copied. length returns the
// size of an object that is copied whole.
func (p *partSizes) note(r *http.Request, length func(source string) int64) {
	number, _ := strconv.Atoi(r.URL.Query().Get("partNumber"))
	size := r.ContentLength
	if decoded, err := strconv.ParseInt(r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64); err == nil {
		size = decoded
	}
	var from, to int64
	if n, _ := fmt.Sscanf(r.Header.Get("X-Amz-Copy-Source-Range"), "bytes=%d-%d", &from, &to); n == 2 {
		size = to - from + 1
	} else if source := r.Header.Get("X-Amz-Copy-Source"); source != "" {
		size = length(source)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := r.URL.Query().Get("uploadId")
	if p.uploads[id] == nil {
		p.uploads[id] = map[int]int64{}
	}
	p.uploads[id][number] = size
}

// length is the size of the source of a copy.
func (s *s3Fixes) length(source string) int64 {
	r, err := http.NewRequest(http.MethodGet, "http://emulator/"+source, nil)
	if err != nil {
		return 0
	}
	recorder := httptest.NewRecorder()
	s.emulator.ServeHTTP(recorder, r)
	return int64(recorder.Body.Len())
}

// refuse answers the completion of an upload with too small parts as S3 does, and
// reports whether it did.
func (p *partSizes) refuse(w http.ResponseWriter, id string, body []byte) bool {
	var upload struct {
		Part []struct{ PartNumber int }
	}
	if xml.Unmarshal(body, &upload) != nil {
		return false // the emulator answers
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sizes := p.uploads[id]
	for i, part := range upload.Part {
		if i < len(upload.Part)-1 && sizes[part.PartNumber] < leastPart {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "<Error><Code>EntityTooSmall</Code><Message>Your proposed upload is smaller than the "+
				"minimum allowed size</Message></Error>")
			return true
		}
	}
	return false
}

// versionList is S3's list of versions.
type versionList struct {
	XMLName             xml.Name `xml:"ListVersionsResult"`
	EncodingType        string   `xml:",omitempty"`
	IsTruncated         bool
	NextKeyMarker       string    `xml:",omitempty"`
	NextVersionIDMarker string    `xml:"NextVersionIdMarker,omitempty"`
	Version             []version `xml:"Version"`
	DeleteMarker        []version `xml:"DeleteMarker"`
}

type version struct {
	Key          string
	VersionID    string `xml:"VersionId"`
	IsLatest     bool
	LastModified string
	ETag         string
	Size         int64
	deleted      bool
}

// versions serves a page of the emulator's whole list of versions.
func (s *s3Fixes) versions(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	whole := r.Clone(r.Context())
	whole.URL.RawQuery = url.Values{"versions": {""}, "prefix": {query.Get("prefix")}, "max-keys": {"1000000"}}.Encode()
	recorder := httptest.NewRecorder()
	s.emulator.ServeHTTP(recorder, whole)
	var list versionList
	if err := xml.Unmarshal(recorder.Body.Bytes(), &list); recorder.Code != http.StatusOK || err != nil {
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes())
		return
	}
	page := list.page(query)
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(page)
}

// page is the page of the list that the query requests.
func (l versionList) page(query url.Values) versionList {
	all := l.Version
	for _, m := range l.DeleteMarker {
		m.deleted = true
		all = append(all, m)
	}
	// S3 lists the versions of a key together, the latest first. The emulator's
	// order varies, so the latest one is sorted to the front.
	slices.SortStableFunc(all, func(a, b version) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		if a.IsLatest != b.IsLatest {
			if a.IsLatest {
				return -1
			}
			return 1
		}
		return strings.Compare(a.VersionID, b.VersionID)
	})
	marker, at := query.Get("key-marker"), query.Get("version-id-marker")
	passed := false
	all = slices.DeleteFunc(all, func(v version) bool {
		if v.Key != marker || at == "" {
			return v.Key <= marker
		}
		skip := !passed
		passed = passed || v.VersionID == at
		return skip
	})
	most, err := strconv.Atoi(query.Get("max-keys"))
	if err != nil || most > 1000 {
		most = 1000
	}
	out := versionList{IsTruncated: len(all) > most}
	encode := func(key string) string { return key }
	if query.Get("encoding-type") == "url" {
		out.EncodingType, encode = "url", url.QueryEscape
	}
	if out.IsTruncated {
		all = all[:most]
		out.NextKeyMarker, out.NextVersionIDMarker = encode(all[most-1].Key), all[most-1].VersionID
	}
	for _, v := range all {
		v.Key = encode(v.Key)
		if v.deleted {
			out.DeleteMarker = append(out.DeleteMarker, v)
		} else {
			out.Version = append(out.Version, v)
		}
	}
	return out
}

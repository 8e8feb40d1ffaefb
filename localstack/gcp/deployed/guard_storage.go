package deployed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"rollout/localstack/gcp/iam"
)

// Permissions of Cloud Storage, and what needs them: see
// docs.cloud.google.com/storage/docs/access-control/iam-json.
const (
	getObject    = "storage.objects.get"
	createObject = "storage.objects.create"
	deleteObject = "storage.objects.delete"
	listObjects  = "storage.objects.list"
	getBucket    = "storage.buckets.get"
)

// maxDescription bounds the body of a request without an object's content.
const maxDescription = 1 << 20

// guardStorage passes a request on to the emulator of Cloud Storage if the caller may make
// it.
func (in *Installation) guardStorage(w http.ResponseWriter, r *http.Request) {
	member, err := in.caller(r.Header.Get("Authorization"))
	if err != nil {
		refuse(w, http.StatusUnauthorized, "authError", err.Error())
		return
	}
	needed, err := in.storagePermissions(r)
	if err != nil {
		refuse(w, http.StatusNotImplemented, "notImplemented", err.Error())
		return
	}
	for _, at := range needed {
		at.Member = member
		// That an object exists already is no lack of a grant.
		replaces := at.Permission == deleteObject && r.Method != http.MethodDelete
		if replaces && !in.Policy.Allows(at) || !replaces && in.Policy.Check(at) != nil {
			forbid(w, at)
			return
		}
	}
	if r.Method == http.MethodGet && len(needed) == 1 && needed[0].Permission == getObject {
		bucket, _, _ := strings.Cut(needed[0].Resource, "/objects/")
		w = &absentWriter{ResponseWriter: w, forbidden: func() *iam.Request {
			list := iam.Request{Member: member, Permission: listObjects, Resource: bucket}
			if in.Policy.Check(list) != nil {
				return &list
			}
			return nil
		}}
	}
	in.Storage.ServeHTTP(w, r)
}

// storagePermissions returns the permissions that a request of Cloud Storage needs.
func (in *Installation) storagePermissions(r *http.Request) ([]iam.Request, error) {
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i := range parts {
		if name, err := url.PathUnescape(parts[i]); err == nil {
			parts[i] = name
		}
	}
	get := func(bucket, name string) iam.Request {
		return iam.Request{Permission: getObject, Resource: objectName(bucket, name)}
	}
	query := r.URL.Query()
	switch {
	case len(parts) == 6 && parts[0] == "upload" && query.Get("upload_id") != "":
		return nil, nil // who knows the session's address may go on
	case len(parts) == 6 && parts[0] == "upload" && query.Get("name") != "":
		return in.create(parts[4], query.Get("name")), nil
	case parts[0] != "storage" && parts[0] != "upload" && r.Method == http.MethodGet: // BUCKET/NAME, of the XML interface
		bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		return []iam.Request{get(bucket, name)}, nil
	case parts[0] != "storage" || len(parts) < 4:
	case len(parts) == 4 && r.Method == http.MethodGet:
		return []iam.Request{{Permission: getBucket, Resource: bucketName(parts[3])}}, nil
	case len(parts) == 5 && r.Method == http.MethodGet:
		return []iam.Request{{Permission: listObjects, Resource: bucketName(parts[3])}}, nil
	case len(parts) == 6 && r.Method == http.MethodGet:
		return []iam.Request{get(parts[3], parts[5])}, nil
	case len(parts) == 6 && r.Method == http.MethodDelete:
		return []iam.Request{{Permission: deleteObject, Resource: objectName(parts[3], parts[5])}}, nil
	case len(parts) == 7 && parts[6] == "compose":
		sources, err := sourcesOf(r)
		needed := in.create(parts[3], parts[5])
		for _, name := range sources {
			needed = append(needed, get(parts[3], name))
		}
		return needed, err
	case len(parts) == 11 && parts[6] == "rewriteTo":
		return append(in.create(parts[8], parts[10]), get(parts[3], parts[5])), nil
	}
	return nil, fmt.Errorf("the permissions of %s %s are not known", r.Method, r.URL)
}

// create returns the permissions to make an object. To replace one is to delete it, also if
// a condition of the request would not hold then.
func (in *Installation) create(bucket, name string) []iam.Request {
	needed := []iam.Request{{Permission: createObject, Resource: objectName(bucket, name)}}
	if in.Storage.Exists(bucket, name) {
		needed = append(needed, iam.Request{Permission: deleteObject, Resource: objectName(bucket, name)})
	}
	return needed
}

// sourcesOf returns the names of a join's sources, and leaves the request's body to be read
// again.
func sourcesOf(r *http.Request) (names []string, err error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxDescription))
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var in struct {
		Sources []struct{ Name string } `json:"sourceObjects"`
	}
	err = json.Unmarshal(body, &in)
	for _, s := range in.Sources {
		names = append(names, s.Name)
	}
	return names, err
}

// absentWriter answers that an absent object is forbidden if the caller may not list the
// bucket.
type absentWriter struct {
	http.ResponseWriter
	forbidden func() *iam.Request // the request that is forbidden; nil if none is
	swallowed bool                // the body of the emulator's answer
}

// WriteHeader begins the answer; see http.ResponseWriter.
func (w *absentWriter) WriteHeader(status int) {
	if status == http.StatusNotFound {
		if denied := w.forbidden(); denied != nil {
			w.swallowed = true
			forbid(w.ResponseWriter, *denied)
			return
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the answer; see http.ResponseWriter.
func (w *absentWriter) Write(p []byte) (int, error) {
	if w.swallowed {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// forbid answers as Cloud Storage does to a caller without a permission.
func forbid(w http.ResponseWriter, r iam.Request) {
	_, account, _ := strings.Cut(r.Member, ":")
	refuse(w, http.StatusForbidden, "forbidden", fmt.Sprintf("%s does not have %s access to the Google Cloud "+
		"Storage object. Permission '%s' denied on resource (or it may not exist).", account, r.Permission, r.Permission))
}

// refuse answers that a request is refused.
func refuse(w http.ResponseWriter, status int, reason, message string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{ // to a client that may have gone
		"code": status, "message": message,
		"errors": []map[string]string{{"domain": "global", "reason": reason, "message": message}},
	}})
}

package deployed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"

	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/record"
)

// callAPI looks at a run, retries it, and stops another one.
func callAPI(ctx context.Context, f *fixture) error {
	api := f.Services[host.APIFunction]
	token := f.options.SecretText // of the config's allowlist
	if !api.values.Is("invoker_iam_disabled") {
		token = f.IdentityToken(operator, api.URL)
	}
	id, err := f.upload(ctx)
	if err != nil {
		return err
	}
	if err := f.exists(ctx, record.CoordinatorKey(id)); err != nil {
		return err
	}
	ask := func(method, path, body string, want int, out any) error {
		status, err := api.Call(ctx, method, path, token, body, out)
		if err == nil && status != want {
			err = fmt.Errorf("%s %s is answered with %d", method, path, status)
		}
		return err
	}
	at := "/v1/runs/" + string(id)
	for _, path := range []string{"/v1/runs", at, at + "/explain?item=p-1", "/v1/workers", "/v1/overview"} {
		if err := ask(http.MethodGet, path, "", http.StatusOK, nil); err != nil {
			return err
		}
	}
	if err := f.ended(ctx, id); err != nil {
		return err
	}
	var child struct {
		Run identity.RunID `json:"run_id"`
	}
	if err := ask(http.MethodPost, at+"/retry", `{"only":["all"]}`, http.StatusAccepted, &child); err != nil {
		return err
	}
	if err := f.exists(ctx, record.CoordinatorKey(child.Run)); err != nil {
		return err
	}
	if err := f.ended(ctx, child.Run); err != nil {
		return err
	}
	outputs := "/v1/files/file-" + string(child.Run) + "-output" // of the retry, which no run reads
	if err := errors.Join(ask(http.MethodDelete, outputs, "", http.StatusOK, nil),
		ask(http.MethodGet, outputs, "", http.StatusNotFound, nil)); err != nil {
		return err
	}
	if err := uploadFiles(ctx, api.URL, token, ask); err != nil {
		return err
	}
	f.leave()
	stopped, err := f.upload(ctx)
	if err != nil {
		return err
	}
	if err := f.exists(ctx, record.ManifestKey(stopped)); err != nil {
		return err
	}
	return ask(http.MethodPost, "/v1/runs/"+string(stopped)+"/stop", "", http.StatusAccepted, nil)
}

// uploadFiles uploads a file to the API, in one request and in parts, reads and deletes it.
func uploadFiles(ctx context.Context, api, token string,
	ask func(method, path, body string, want int, out any) error) error {
	var whole, up, done struct {
		ID   string
		File struct{ ID string }
	}
	const line = `{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"a"}}` + "\n"
	if err := postForm(ctx, api+"/v1/files", token, &whole, "purpose", "batch", "file", line); err != nil {
		return err
	}
	create := fmt.Sprintf(`{"filename":"b.jsonl","purpose":"batch","bytes":%d}`, 2*len(line))
	if err := ask(http.MethodPost, "/v1/uploads", create, http.StatusOK, &up); err != nil {
		return err
	}
	var parts [2]struct{ ID string }
	for n := range parts {
		if err := postForm(ctx, api+"/v1/uploads/"+up.ID+"/parts", token, &parts[n], "data", line); err != nil {
			return err
		}
	}
	complete := fmt.Sprintf(`{"part_ids":[%q,%q]}`, parts[0].ID, parts[1].ID)
	if err := ask(http.MethodPost, "/v1/uploads/"+up.ID+"/complete", complete, http.StatusOK, &done); err != nil {
		return err
	}
	if err := ask(http.MethodGet, "/v1/files/"+done.File.ID+"/content", "", http.StatusOK, nil); err != nil {
		return err
	}
	for _, id := range []string{whole.ID, done.File.ID} {
		if err := ask(http.MethodDelete, "/v1/files/"+id, "", http.StatusOK, nil); err != nil {
			return err
		}
	}
	return nil
}

// postForm posts a form with these fields, those of files last, and decodes the answer.
func postForm(ctx context.Context, address, token string, out any, fields ...string) error {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for k := 0; k < len(fields); k += 2 {
		create := w.CreateFormField
		if fields[k] != "purpose" {
			create = func(field string) (io.Writer, error) { return w.CreateFormFile(field, "a.jsonl") }
		}
		part, err := create(fields[k])
		if err == nil {
			_, err = io.WriteString(part, fields[k+1])
		}
		if err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, &form)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", w.FormDataContentType())
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // read only
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("POST %s is answered with %d: %s", r.URL.Path, answer.StatusCode, body)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, out)
}

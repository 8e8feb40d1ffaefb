package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// CheckEngineImages returns the check whether the container images of the pools' servers
// exist where machines fetch them without an account.
func CheckEngineImages(d config.Deployment, client *http.Client) Check {
	g := registries{clientOr(client), d}
	return Check{Name: cloud.CheckEngineImage, Limit: webLimit, Remedy: func(error) string { return "" }, Probe: g.check}
}

// imagesOf returns the container images of the pools whose machines start a server.
func imagesOf(d config.Deployment) (images []string) {
	for _, p := range d.InferPools() {
		image := d.MachinesOf(p).EngineImage
		if p.ModelSource() != config.ModelBuiltIn && image != "" && !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	return images
}

// registries asks registries of container images by the protocol of the OCI distribution
// specification.
type registries struct {
	client *http.Client
	at     config.Deployment
}

func (g registries) check(ctx context.Context) (string, error) {
	var looks cloud.Looks
	for _, image := range imagesOf(g.at) {
		if err := looks.Add(image, g.image(ctx, image)); err != nil {
			return "", err
		}
	}
	return looks.Result(", ")
}

// image asks for the manifest of an image: first without a token and, if the registry
// names a place that gives tokens to anyone, with one.
func (g registries) image(ctx context.Context, name string) error {
	at := parseReference(name)
	status, challenge, err := g.head(ctx, at, "")
	if err == nil && status == http.StatusUnauthorized {
		realm, ok := at.tokenURL(challenge)
		if !ok {
			return &cloud.Unseen{Reason: "the registry " + at.host + " asks for an account, which the machines need, too"}
		}
		var token string
		if token, err = g.token(ctx, at, realm); err == nil && token != "" {
			status, _, err = g.head(ctx, at, token)
		}
	}
	switch {
	case err != nil:
		return err
	case status == http.StatusOK:
		return nil
	case status == http.StatusNotFound:
		return &fault.Error{Kind: fault.NotFound,
			Err:    fault.New(fault.NotFound, "the registry %s has no image %s", at.host, name),
			Remedy: "correct engine_image"}
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &fault.Error{Kind: fault.Denied,
			Err: fault.New(fault.Denied, "the registry %s refuses the image %s without an account: it is private or absent",
				at.host, name),
			Remedy: "correct engine_image, or name a public image"}
	}
	return &cloud.Unseen{Reason: fmt.Sprintf("the registry %s answered %d", at.host, status)}
}

// manifestTypes are the kinds of manifests that an image may have.
var manifestTypes = strings.Join([]string{"application/vnd.oci.image.index.v1+json",
	"application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json",
	"application/vnd.docker.distribution.manifest.v2+json"}, ", ")

// head asks for a manifest and returns the registry's status and what it demands.
func (g registries) head(ctx context.Context, at reference, token string) (status int, challenge string, err error) {
	header := http.Header{"Accept": {manifestTypes}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	manifest := at.scheme + "://" + at.host + "/v2/" + at.repository + "/manifests/" + at.tag
	answer, _, err := g.ask(ctx, http.MethodHead, manifest, header)
	if err != nil {
		return 0, "", err
	}
	return answer.StatusCode, answer.Header.Get("WWW-Authenticate"), nil
}

// token fetches a token that anyone gets; it is "" if this one does not.
func (g registries) token(ctx context.Context, at reference, realm string) (string, error) {
	answer, body, err := g.ask(ctx, http.MethodGet, realm, nil)
	if err != nil || answer.StatusCode != http.StatusOK {
		return "", err
	}
	var out struct {
		Token  string
		Access string `json:"access_token"`
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return "", &cloud.Unseen{Reason: "the tokens of the registry " + at.host + " are not JSON"}
	}
	if out.Token == "" {
		return out.Access, nil
	}
	return out.Token, nil
}

// maxToken bounds the answer with a token.
const maxToken = 1 << 20

func (g registries) ask(ctx context.Context, method, at string, header http.Header) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, webTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return nil, nil, fault.WithKind(fault.Invalid, err, "ask the registry")
	}
	if header != nil {
		r.Header = header
	}
	answer, err := g.client.Do(r)
	if err != nil {
		return nil, nil, &cloud.Unseen{Reason: "the registry " + r.URL.Host + " can't be reached from here (" + cause(err) +
			")"}
	}
	defer func() { _ = answer.Body.Close() }() // it is only read
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxToken))
	if err != nil {
		return nil, nil, &cloud.Unseen{Reason: "the answer of the registry " + r.URL.Host + " broke off"}
	}
	return answer, body, nil
}

// reference is the name of a container image in parts.
type reference struct{ scheme, host, repository, tag string }

// dockerHub is the registry of images whose names have no host.
const dockerHub = "registry-1.docker.io"

// parseReference splits the name of an image as Docker does: the part before the first
// slash is a host if it has a dot or a port, or is localhost. Docker speaks plain HTTP
// with registries on this machine.
func parseReference(name string) reference {
	r := reference{scheme: "https", host: dockerHub, tag: "latest"}
	if first, rest, ok := strings.Cut(name, "/"); ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		r.host, name = first, rest
	}
	host, _, err := net.SplitHostPort(r.host)
	if err != nil {
		host = r.host
	}
	if ip := net.ParseIP(host); host == "localhost" || ip.IsLoopback() {
		r.scheme = "http"
	}
	if r.host == "docker.io" || r.host == "index.docker.io" {
		r.host = dockerHub
	}
	name, digest, pinned := strings.Cut(name, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		name, r.tag = name[:i], name[i+1:]
	}
	if pinned {
		r.tag = digest
	}
	if r.host == dockerHub && !strings.Contains(name, "/") {
		name = "library/" + name
	}
	r.repository = name
	return r
}

var parameter = regexp.MustCompile(`(\w+)="([^"]*)"`)

// tokenURL returns the address of tokens that a registry's demand names, for reading the
// image. ok is false if it demands something else, such as a password.
func (r reference) tokenURL(challenge string) (at string, ok bool) {
	scheme, rest, _ := strings.Cut(challenge, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	query := url.Values{"scope": {"repository:" + r.repository + ":pull"}}
	for _, m := range parameter.FindAllStringSubmatch(rest, -1) {
		switch m[1] {
		case "realm":
			at = m[2]
		case "service":
			query.Set("service", m[2])
		}
	}
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "https" && u.Scheme != r.scheme || u.Host == "" {
		return "", false
	}
	for name, values := range u.Query() {
		query[name] = values
	}
	u.RawQuery = query.Encode()
	return u.String(), true
}

// clientOr returns the client, or Go's own.
func clientOr(c *http.Client) *http.Client {
	if c == nil {
		return http.DefaultClient
	}
	return c
}

// cause returns why a request failed, without its address.
func cause(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within " + webTime.String()
	}
	return err.Error()
}

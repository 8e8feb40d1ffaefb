package gcp

import (
	"context"
	"os"
	"sync"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollout/shared/fault"
)

// cloudScope is the scope of access tokens: what a token may do is decided by the
// roles of its account.
const cloudScope = "https://www.googleapis.com/auth/cloud-platform"

// Variables that send the SDK's clients to an emulator, without credentials.
// GCE_METADATA_HOST is the one of the instance's metadata. Secret Manager has none:
// its requests reach an emulator only through HTTPS_PROXY and SSL_CERT_FILE, which
// every client of Go obeys.
const (
	StorageEmulatorVariable   = "STORAGE_EMULATOR_HOST"
	FirestoreEmulatorVariable = "FIRESTORE_EMULATOR_HOST"
	PubSubEmulatorVariable    = "PUBSUB_EMULATOR_HOST"
)

// Config says which project the clients use, and with which credentials.
type Config struct {
	Project string // the id, not the number. Example: "acme-ml"
	// Credentials are used by all clients, so that they share one token. Without
	// them requests are sent unauthenticated, as emulators expect.
	Credentials *auth.Credentials
	// Clock is set by the answers over gRPC; optional.
	Clock *Clock
}

// LoadConfig returns the configuration for the project, with the SDK's default
// credentials: those of GOOGLE_APPLICATION_CREDENTIALS, of gcloud, or of the
// instance or function that the process runs on, in this order. It fails with
// Invalid if no project is named.
//
// It sends no request. Credentials are looked up when a client is made; missing
// credentials are Denied, when a request needs them.
func LoadConfig(project string) (Config, error) {
	if project == "" {
		return Config{}, &fault.Error{Kind: fault.Invalid, Op: "load the Google Cloud configuration",
			Err: fault.New(fault.Invalid, "no project is configured"), Remedy: "set cloud.project to the project's id"}
	}
	found := &defaultCredentials{}
	return Config{Project: project, Credentials: auth.NewCredentials(&auth.CredentialsOptions{
		TokenProvider:          found,
		QuotaProjectIDProvider: auth.CredentialsPropertyFunc(found.quotaProject),
	})}, nil
}

// clientOptions returns the options of a service's client over gRPC. emulator is the
// variable that names the service's emulator, or "" if there is none. own are the
// options of the driver and of tests; the last one wins.
func (c Config) clientOptions(emulator string, own ...option.ClientOption) []option.ClientOption {
	options := c.httpOptions(emulator)
	if c.Clock != nil {
		options = append(options, c.Clock.options()...)
	}
	return append(options, own...)
}

// httpOptions is clientOptions for a client over HTTP, which refuses options of gRPC.
func (c Config) httpOptions(emulator string, own ...option.ClientOption) []option.ClientOption {
	options := []option.ClientOption{option.WithUserAgent("rollout")}
	switch {
	case c.Credentials == nil:
		options = append(options, option.WithoutAuthentication())
	case emulator == "" || os.Getenv(emulator) == "": // clients of an emulator refuse credentials
		options = append(options, option.WithAuthCredentials(c.Credentials))
	}
	return append(options, own...)
}

// defaultCredentials finds the SDK's default credentials at first use, and looks again
// while it finds none. It is safe
// for concurrent use.
type defaultCredentials struct {
	mu    sync.Mutex
	found *auth.Credentials // nil until they are found
}

// Token returns an access token. Missing and refused credentials are Denied. If the
// service that issues tokens cannot be reached, the error is Unavailable or
// Throttled.
func (d *defaultCredentials) Token(ctx context.Context) (*auth.Token, error) {
	found, err := d.find()
	if err != nil {
		return nil, err
	}
	token, err := found.Token(ctx)
	if err != nil {
		return nil, credentialsFailed(ctx, err)
	}
	return token, nil
}

// quotaProject returns the project that pays for the requests of a user's own
// credentials, or "". Clients ask for it when they are made, which must succeed without
// credentials: the requests report what is missing.
func (d *defaultCredentials) quotaProject(ctx context.Context) (string, error) {
	found, err := d.find()
	if err != nil {
		return "", nil
	}
	return found.QuotaProjectID(ctx)
}

func (d *defaultCredentials) find() (*auth.Credentials, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found != nil {
		return d.found, nil
	}
	found, err := credentials.DetectDefault(
		&credentials.DetectOptions{Scopes: []string{cloudScope}, UseSelfSignedJWT: true})
	if err != nil {
		return nil, &credentialsError{&fault.Error{Kind: fault.Denied, Op: findCredentials, Err: err, Remedy: signIn}}
	}
	d.found = found
	return found, nil
}

const (
	findCredentials = "get Google Cloud credentials"
	signIn          = "sign in with gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
)

// credentialsFailed translates the error of a request for a token.
func credentialsFailed(ctx context.Context, err error) error {
	e := &fault.Error{Kind: kindOf(err), Op: findCredentials, Err: err}
	switch {
	case ctx.Err() != nil:
		e.Kind = fault.Canceled
	case e.Kind != fault.Unavailable && e.Kind != fault.Throttled:
		e.Kind, e.Remedy = fault.Denied, signIn
	}
	return &credentialsError{e}
}

// credentialsError is an error that keeps its kind on its way through gRPC, which
// replaces an error of a credential that has no status.
type credentialsError struct{ cause *fault.Error }

// Error returns the cause's text.
func (e *credentialsError) Error() string { return e.cause.Error() }

// Unwrap returns the cause, which has the kind.
func (e *credentialsError) Unwrap() error { return e.cause }

// GRPCStatus returns the status by which gRPC decides about a retry.
func (e *credentialsError) GRPCStatus() *status.Status {
	if fault.Retriable(e.cause) {
		return status.New(codes.Unavailable, e.cause.Error())
	}
	return status.New(codes.Unauthenticated, e.cause.Error())
}

package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"rollout/shared/ca"
	"rollout/shared/fault"
	"rollout/shared/remote/portsv1"
)

// Bounds of the connection.
const (
	callTimeout    = 15 * time.Second // of a call, unless it may take long
	connectTimeout = 5 * time.Second
	connectPause   = 2 * time.Second  // the longest between two attempts
	pingEvery      = 10 * time.Second // gRPC's shortest
	pingTimeout    = 5 * time.Second
	// MaxRequest bounds a message to the server, and maxAnswer one of the server, in bytes.
	MaxRequest = 8 << 20
	maxAnswer  = 8 << 20
)

// Client is a connection to an installation. It is safe for concurrent use. Use Join to get one,
// and Close it.
type Client struct {
	conn *grpc.ClientConn

	mu      sync.Mutex
	refusal error
	refused chan struct{} // closed once refusal is set
}

// newClient returns a client of the address with those TLS settings. It connects at the first call.
func newClient(address string, settings *tls.Config) (*Client, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(settings)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout,
			PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectTimeout, Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: connectPause}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(MaxRequest)),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy())
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "connect to %s", address)
	}
	return &Client{conn: conn, refused: make(chan struct{})}, nil
}

// Documents returns the installation's documents.
func (c *Client) Documents() *Documents { return &Documents{c, portsv1.NewDocumentsClient(c.conn)} }

// Objects returns the objects of the installation's bucket.
func (c *Client) Objects() *Objects { return &Objects{c, portsv1.NewObjectsClient(c.conn)} }

// Queues returns the installation's queues.
func (c *Client) Queues() *Queues { return &Queues{c, portsv1.NewQueuesClient(c.conn)} }

// Secrets returns the secrets that the server gives to workers.
func (c *Client) Secrets() *Secrets { return &Secrets{c, portsv1.NewSecretsClient(c.conn)} }

// Description is what the installation says to those who join.
type Description struct {
	Config   []byte   // of the deployment, TOML; empty has the defaults
	Settings []string // written over it
	Pool     string   // for which alone the worker may work; "" is any that answers prompts
}

// Describe asks the installation what a worker must know before it starts.
func (c *Client) Describe(ctx context.Context) (Description, error) {
	d, err := call(ctx, c, portsv1.NewMembershipClient(c.conn).Describe, &portsv1.DescribeRequest{})
	return Description{Config: d.GetConfig(), Settings: d.GetSettings(), Pool: d.GetPool()},
		fault.Wrap(err, "ask the installation for its config")
}

// Refused returns a channel that is closed when the server no longer takes this client for a
// worker: its certificate was revoked or has ended. Refusal then returns why.
func (c *Client) Refused() <-chan struct{} { return c.refused }

// Refusal returns why the server refuses this client; nil if it does not.
func (c *Client) Refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// failed returns the error of a call, and notes that the server refuses the client.
func (c *Client) failed(ctx context.Context, err error) error {
	out := errorOf(ctx, err)
	if err != nil && status.Code(err) == unidentified {
		c.mu.Lock()
		if c.refusal == nil {
			c.refusal = out
			close(c.refused)
		}
		c.mu.Unlock()
	}
	return out
}

// call makes a call that takes the server a moment.
func call[In, Out any](ctx context.Context, c *Client, rpc func(context.Context, *In, ...grpc.CallOption) (*Out, error),
	in *In) (*Out, error) {
	return longCall(ctx, c, rpc, in, callTimeout)
}

// longCall makes a call that takes at most that long: after it, the server may have done it.
func longCall[In, Out any](ctx context.Context, c *Client,
	rpc func(context.Context, *In, ...grpc.CallOption) (*Out, error), in *In, most time.Duration) (*Out, error) {
	calling, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	out, err := rpc(calling, in)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	return out, nil
}

// tlsConfig returns the settings of a client that trusts the authority alone.
func tlsConfig(authority *x509.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: ca.ServerName}
}

// errNoServer is the error of a server that shows no certificate of the token's authority.
var errNoServer = errors.New("the server there is not the one that the token is of")

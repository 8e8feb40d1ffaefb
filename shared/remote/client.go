package remote

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

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
	conn atomic.Pointer[grpc.ClientConn]

	mu      sync.Mutex
	old     []*grpc.ClientConn // that calls may still use, until oldConnection after they were replaced
	refusal error
	refused chan struct{} // closed once refusal is set
}

// newClient returns a client of the address with those TLS settings. It connects at the first call.
func newClient(address string, settings *tls.Config) (*Client, error) {
	conn, err := dial(address, settings)
	if err != nil {
		return nil, err
	}
	c := &Client{refused: make(chan struct{})}
	c.conn.Store(conn)
	return c, nil
}

func dial(address string, settings *tls.Config) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(settings)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout,
			PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectTimeout, Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: connectPause}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(MaxRequest)),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy())
	return conn, fault.WithKind(fault.Invalid, err, "connect to %s", address)
}

// oldConnection is how long calls may use a connection that was replaced: long uploads go on.
const oldConnection = 10 * time.Minute

// replace makes later calls use another connection.
func (c *Client) replace(conn *grpc.ClientConn) {
	before := c.conn.Swap(conn)
	c.mu.Lock()
	c.old = append(c.old, before)
	c.mu.Unlock()
	time.AfterFunc(oldConnection, func() { _ = before.Close() })
}

// Invoke is grpc.ClientConnInterface's.
func (c *Client) Invoke(ctx context.Context, method string, in, out any, options ...grpc.CallOption) error {
	return c.conn.Load().Invoke(ctx, method, in, out, options...)
}

// NewStream is grpc.ClientConnInterface's.
func (c *Client) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, options ...grpc.CallOption) (
	grpc.ClientStream, error) {
	return c.conn.Load().NewStream(ctx, d, method, options...)
}

// Documents returns the installation's documents.
func (c *Client) Documents() *Documents { return &Documents{c, portsv1.NewDocumentsClient(c)} }

// Objects returns the objects of the installation's bucket.
func (c *Client) Objects() *Objects { return &Objects{c, portsv1.NewObjectsClient(c)} }

// Queues returns the installation's queues.
func (c *Client) Queues() *Queues { return &Queues{c, portsv1.NewQueuesClient(c)} }

// Secrets returns the secrets that the server gives to workers.
func (c *Client) Secrets() *Secrets { return &Secrets{c, portsv1.NewSecretsClient(c)} }

// Description is what the installation says to those who join.
type Description struct {
	Config   []byte   // of the deployment, TOML; empty has the defaults
	Settings []string // written over it
	Pool     string   // for which alone the worker may work; "" is any that answers prompts
	Pools    []Pool   // that answer prompts
}

// Pool is a pool of the installation, with the model that its runs name.
type Pool struct{ Name, Model string }

// Describe asks the installation what a worker must know before it starts.
func (c *Client) Describe(ctx context.Context) (Description, error) {
	d, err := call(ctx, c, portsv1.NewMembershipClient(c).Describe, &portsv1.DescribeRequest{})
	out := Description{Config: d.GetConfig(), Settings: d.GetSettings(), Pool: d.GetPool()}
	for _, p := range d.GetPools() {
		out.Pools = append(out.Pools, Pool{p.GetName(), p.GetModel()})
	}
	return out, fault.Wrap(err, "ask the installation for its config")
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

// Close ends the connections.
func (c *Client) Close() error {
	c.mu.Lock()
	old := c.old
	c.mu.Unlock()
	for _, conn := range old {
		_ = conn.Close() // it may be closed already
	}
	return c.conn.Load().Close()
}

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

package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	"rollout/shared/ca"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/remote/portsv1"
)

// Options are the options of Join.
type Options struct {
	Address string   // of `rollout up --join-listen`. Example: "10.0.0.5:8788"
	Dir     string   // keeps the worker's certificate, for this address alone
	Token   ca.Token // used while Dir has no certificate that is valid; the zero value is none
	Clock   clock.Clock
	Log     *slog.Logger
}

// Join connects to an installation with the certificate in o.Dir or, if that is missing, has ended
// or is refused, with a new one for the token. It fails at once if the server can't be reached or
// refuses the worker. Until the returned function closes the client, or ctx ends, the certificate is
// renewed.
func Join(ctx context.Context, o Options) (*Client, func() error, error) {
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		return nil, nil, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%.128q is no address to join", o.Address),
			Remedy: "use host:port, such as 10.0.0.5:8788"}
	}
	id, err := readIdentity(o.Dir)
	if err != nil {
		return nil, nil, err
	}
	kept := id != nil && id.validAt(o.Clock.Now()) && !o.otherToken(id)
	if !kept {
		if id, err = o.enroll(ctx, id != nil); err != nil {
			return nil, nil, err
		}
	}
	c, closeClient, err := o.connect(ctx, id)
	if err == nil || !kept || c == nil || c.Refusal() == nil || o.Token.Secret.Reveal() == "" {
		return c, closeClient, err
	}
	// The certificate that was kept is refused, and there is a token for another one.
	if id, err = o.enroll(ctx, true); err != nil {
		return nil, nil, err
	}
	return o.connect(ctx, id)
}

// connect returns a client with the identity, which renews it. After an error the client is
// closed, and only its Refusal may be asked.
func (o Options) connect(ctx context.Context, id *identity) (*Client, func() error, error) {
	h := &holder{options: o, current: id}
	settings := o.trust(sha256.Sum256(id.authority.Raw))
	settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return h.identity().certificate(), nil
	}
	h.dial = func() (*grpc.ClientConn, error) { return dial(o.Address, settings) }
	c, err := newClient(o.Address, settings)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Documents().Ping(ctx); err != nil {
		return c, nil, errors.Join(fault.Wrap(err, "join the installation at %s", o.Address), c.Close())
	}
	renewing, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { h.renew(renewing, c) })
	return c, func() error {
		stop()
		done.Wait()
		return c.Close()
	}, nil
}

// otherToken reports whether the identity was given for another token: the installation was made
// anew, or the worker is to join another pool.
func (o Options) otherToken(id *identity) bool {
	secretText := o.Token.Secret.Reveal()
	return secretText != "" && ca.SecretID(secretText) != id.token
}

// enroll asks for a certificate with the token, and keeps it.
func (o Options) enroll(ctx context.Context, ended bool) (*identity, error) {
	if o.Token.Secret.Reveal() == "" {
		why := "the worker has no certificate of the installation at " + o.Address
		if ended {
			why = "the worker's certificate has ended"
		}
		return nil, &fault.Error{Kind: fault.Denied, Err: errors.New(why),
			Remedy: "make a token with `rollout join-token` there, and pass it in ROLLOUT_JOIN_TOKEN"}
	}
	key, request, err := newRequest()
	if err != nil {
		return nil, err
	}
	c, err := newClient(o.Address, o.trust(o.Token.Fingerprint))
	if err != nil {
		return nil, err
	}
	defer c.Close() // the certificate is asked for on a connection of its own
	host, _ := os.Hostname()
	got, err := call(ctx, c, portsv1.NewMembershipClient(c).Enroll,
		&portsv1.EnrollRequest{Token: o.Token.Secret.Reveal(), SigningRequest: request, Host: valid(host)})
	if err != nil {
		return nil, fault.Wrap(err, "join the installation at %s", o.Address)
	}
	if sha256.Sum256(got.Authority) != o.Token.Fingerprint {
		return nil, fault.WithKind(fault.Denied, errNoServer, "join the installation at %s", o.Address)
	}
	id, err := newIdentity(key, got.GetCertificate(), got.GetAuthority())
	if err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "read the certificate that the server gave")
	}
	id.token = ca.SecretID(o.Token.Secret.Reveal())
	return id, id.write(o.Dir)
}

// trust returns the settings of a connection to a server whose authority has the fingerprint.
func (o Options) trust(fingerprint [sha256.Size]byte) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection checks the chain, and says what to do
		ServerName:         ca.ServerName,
		VerifyConnection: func(s tls.ConnectionState) error {
			for _, authority := range s.PeerCertificates {
				if sha256.Sum256(authority.Raw) == fingerprint {
					return o.verifyServer(s.PeerCertificates[0], authority)
				}
			}
			return errNoServer
		},
	}
}

// verifyServer returns nil if the authority has signed a server's certificate, which holds now.
func (o Options) verifyServer(cert, authority *x509.Certificate) error {
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: ca.ServerName, CurrentTime: o.Clock.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return fmt.Errorf("the server's certificate is valid from %s to %s, and this machine's clock says %s: "+
			"correct the clock of this machine, or of the server's", cert.NotBefore.UTC().Format(time.RFC3339),
			cert.NotAfter.UTC().Format(time.RFC3339), o.Clock.Now().UTC().Format(time.RFC3339))
	}
	return err
}

// errNoServer is the error of a server that shows no certificate of the right authority.
var errNoServer = errors.New("the server there is not the one that the token, or the certificate, is of")

// holder holds the present identity of a client.
type holder struct {
	options Options
	dial    func() (*grpc.ClientConn, error) // shows the present identity

	mu      sync.Mutex
	current *identity
}

func (h *holder) identity() *identity {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// How long the renewal waits after one that failed, at first and at most.
const (
	renewPause    = 10 * time.Second
	maxRenewPause = 10 * time.Minute
)

// renew asks for another certificate whenever RenewAfter of the present one's life is over, and
// connects anew with it: a connection shows the certificate with which it began.
func (h *holder) renew(ctx context.Context, c *Client) {
	log := h.options.Log
	id := h.identity()
	// A clock that is wrong must not delay it.
	wait := min(id.cert.NotBefore.Add(lifeOf(id)).Sub(h.options.Clock.Now()), lifeOf(id))
	for failures := 0; ; {
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.Refused():
			timer.Stop()
			return
		case <-timer.C:
		}
		next, err := h.options.renewOnce(ctx, c, h.identity())
		if err == nil {
			err = h.use(c, next)
		}
		if err != nil {
			wait = min(renewPause<<min(failures, 8), maxRenewPause)
			failures++
			log.WarnContext(ctx, "the worker's certificate can't be renewed yet", "until", h.identity().cert.NotAfter,
				observe.KeyError, err)
			continue
		}
		// It has just been given: how the clocks of the machines differ does not matter.
		failures, wait = 0, lifeOf(next)
		if err := next.write(h.options.Dir); err != nil {
			log.WarnContext(ctx, "the worker's certificate can't be kept for its next start", observe.KeyError, err)
		}
		log.InfoContext(ctx, "the worker's certificate is renewed", "until", next.cert.NotAfter)
	}
}

// lifeOf returns how long after it was given an identity is renewed.
func lifeOf(id *identity) time.Duration {
	return time.Duration(float64(id.cert.NotAfter.Sub(id.cert.NotBefore)) * ca.RenewAfter)
}

// use makes a client show an identity.
func (h *holder) use(c *Client, id *identity) error {
	h.mu.Lock()
	h.current = id
	h.mu.Unlock()
	conn, err := h.dial()
	if err == nil {
		c.replace(conn)
	}
	return err
}

func (o Options) renewOnce(ctx context.Context, c *Client, old *identity) (*identity, error) {
	key, request, err := newRequest()
	if err != nil {
		return nil, err
	}
	got, err := call(ctx, c, portsv1.NewMembershipClient(c).Renew, &portsv1.RenewRequest{SigningRequest: request})
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(got.Authority, old.authority.Raw) {
		return nil, fault.New(fault.Denied, "the server gave a certificate of another authority")
	}
	next, err := newIdentity(key, got.GetCertificate(), got.GetAuthority())
	if err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "read the certificate that the server gave")
	}
	next.token = old.token
	return next, nil
}

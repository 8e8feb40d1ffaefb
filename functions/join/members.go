package join

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"rollout/shared/ca"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/text"
)

// Bounds of a token's life.
const (
	DefaultTokenLife = time.Hour
	MaxTokenLife     = 7 * 24 * time.Hour
)

// Member is a worker's permission to join, at record.JoinMemberPrefix: what belongs to its
// certificate.
type Member struct {
	Schema    int       `json:"schema"`
	ID        string    `json:"id"`
	Host      string    `json:"host"`           // as the worker calls its machine
	Pool      string    `json:"pool,omitempty"` // for which alone it may work; "" is any that answers prompts
	Enrolled  time.Time `json:"enrolled_at"`
	Until     time.Time `json:"until"` // the end of its newest certificate
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	Token     string    `json:"token"` // the key of the token with which it enrolled
}

// token is a token that workers may still use, at record.JoinTokenPrefix and its id.
type token struct {
	Schema int       `json:"schema"`
	Pool   string    `json:"pool,omitempty"`
	Until  time.Time `json:"until"`
}

// Members are the workers that may join an installation. It is safe for concurrent use, also by
// several processes. Use NewMembers.
type Members struct {
	host.Ports
	authority *ca.Authority

	mu    sync.Mutex
	known map[string]checked // by id
}

// checked is what a member's document said at a time.
type checked struct {
	at     time.Time
	member Member
	err    error
}

// NewMembers returns the members of the installation with those documents, whose certificates
// the authority signs.
func NewMembers(p host.Ports, a *ca.Authority) *Members {
	return &Members{Ports: p, authority: a, known: map[string]checked{}}
}

// NewToken makes a token with which any number of workers may join the pool until its life is
// over; pool "" is any that answers prompts. A life that is not within its bounds is Invalid.
func (m *Members) NewToken(ctx context.Context, life time.Duration, pool string) (ca.Token, time.Time, error) {
	if life <= 0 || life > MaxTokenLife {
		return ca.Token{}, time.Time{}, &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("a token that is valid for %s", life),
			Remedy: fmt.Sprintf("let it be valid for at most %s", MaxTokenLife)}
	}
	m.sweep(ctx)
	t := m.authority.NewToken()
	until := m.Clock.Now().Add(life).UTC().Truncate(time.Second)
	_, err := m.Docs.Create(ctx, tokenKey(t.Secret.Reveal()),
		record.Encode(token{Schema: record.Schema, Pool: pool, Until: until}))
	return t, until, fault.Wrap(err, "keep the token")
}

func tokenKey(secretText string) string { return record.JoinTokenPrefix + ca.SecretID(secretText) }

func memberKey(id string) string { return record.JoinMemberPrefix + id }

// Enroll gives a certificate for a token's secret, DER. A token that is not known or no longer
// valid is Denied.
func (m *Members) Enroll(ctx context.Context, secretText string, request []byte, hostName string) ([]byte, error) {
	var t token
	_, found, err := host.Load(ctx, m.Docs, tokenKey(secretText), &t)
	if err != nil {
		return nil, err
	}
	now := m.Clock.Now()
	if !found || !now.Before(t.Until) {
		return nil, &fault.Error{Kind: fault.Denied, Err: errors.New("the join token is not valid, or no longer"),
			Remedy: "make another one with `rollout join-token`"}
	}
	id := ulid.Make().String()
	der, until, err := m.authority.SignClient(request, id, now)
	if err != nil {
		return nil, err
	}
	_, err = m.Docs.Create(ctx, memberKey(id), record.Encode(Member{Schema: record.Schema, ID: id,
		Host: text.Truncate(hostName, maxHost, "…"), Pool: t.Pool, Enrolled: now.UTC(), Until: until,
		Token: tokenKey(secretText)}))
	return der, fault.Wrap(err, "enroll a worker")
}

// maxHost bounds the name of a worker's machine, in bytes.
const maxHost = 128

// Renew gives another certificate to a member.
func (m *Members) Renew(ctx context.Context, id string, request []byte) ([]byte, error) {
	der, until, err := m.authority.SignClient(request, id, m.Clock.Now())
	if err != nil {
		return nil, err
	}
	_, err = m.change(ctx, id, func(cur *Member) { cur.Until = until })
	return der, err
}

// Revoke ends a member: its certificates are refused from then on, within checkFor at the latest.
// Its token ends with it, because it could enroll again with that. An unknown one is NotFound.
func (m *Members) Revoke(ctx context.Context, id string) (Member, error) {
	member, err := m.change(ctx, id, func(cur *Member) {
		if cur.RevokedAt.IsZero() {
			cur.RevokedAt = m.Clock.Now().UTC()
		}
	})
	if err != nil {
		return member, err
	}
	d, err := m.Docs.Get(ctx, member.Token)
	if err == nil {
		err = m.Docs.Delete(ctx, d.Key, d.Revision)
	}
	if fault.Is(err, fault.NotFound) { // it had ended before
		err = nil
	}
	return member, fault.Wrap(err, "end the token of worker %s", id)
}

func (m *Members) change(ctx context.Context, id string, apply func(*Member)) (Member, error) {
	return host.Update(ctx, m.Docs, memberKey(id), func(cur Member, found bool) (Member, bool, error) {
		if !found {
			return cur, false, unknownMember(id)
		}
		next := cur
		apply(&next)
		return next, next != cur, nil
	})
}

func unknownMember(id string) error {
	return &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("no worker has joined as %.64q", id),
		Remedy: "`rollout joined` lists those that have"}
}

// All returns the members whose certificates have not ended, in the order in which they enrolled.
func (m *Members) All(ctx context.Context) (all []Member, err error) {
	now := m.Clock.Now()
	for d, err := range document.All(ctx, m.Docs, record.JoinMemberPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the workers that have joined")
		}
		var member Member
		if err := record.Decode(d.Value, &member, d.Key); err != nil {
			return nil, err
		}
		if now.Before(member.Until) {
			all = append(all, member)
		}
	}
	return all, nil
}

// How long what a member's document says is taken for true, and how many are remembered.
const (
	checkFor   = 2 * time.Second
	maxChecked = 10_000
)

// Check returns the member, or Denied if it is revoked or not known.
func (m *Members) Check(ctx context.Context, id string) (Member, error) {
	now := m.Clock.Now()
	m.mu.Lock()
	c, ok := m.known[id]
	m.mu.Unlock()
	if ok && now.Sub(c.at) < checkFor && now.Sub(c.at) >= 0 {
		return c.member, c.err
	}
	c = checked{at: now}
	_, found, err := host.Load(ctx, m.Docs, memberKey(id), &c.member)
	if err != nil {
		return Member{}, err
	}
	if !found || !c.member.RevokedAt.IsZero() {
		c.err = &fault.Error{Kind: fault.Denied, Err: errors.New("the worker's certificate is revoked"),
			Remedy: "make a token with `rollout join-token`, and start the worker with it"}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxChecked {
		clear(m.known)
	}
	m.known[id] = c
	return c.member, c.err
}

// sweep deletes tokens that have ended, and members whose certificates ended a day ago. What it
// can't delete stays: it decides nothing.
func (m *Members) sweep(ctx context.Context) {
	now := m.Clock.Now()
	for d, err := range document.All(ctx, m.Docs, record.JoinPrefix) {
		if err != nil {
			return
		}
		var ends struct {
			Until time.Time `json:"until"`
		}
		if err := record.Decode(d.Value, &ends, d.Key); err == nil && now.Sub(ends.Until) > 24*time.Hour {
			_ = m.Docs.Delete(ctx, d.Key, d.Revision)
		}
	}
}

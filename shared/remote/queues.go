package remote

import (
	"context"
	"time"

	"rollout/shared/fault"
	"rollout/shared/queue"
	"rollout/shared/remote/portsv1"
	"rollout/shared/secret"
)

// Queues implements queue.Queues. Use Client.Queues to get one.
type Queues struct {
	client *Client
	rpc    portsv1.QueuesClient
}

var _ queue.Queues = (*Queues)(nil)

// sendBytes bounds the bodies of one request, so that it fits into a message of gRPC.
const sendBytes = 1 << 20

// ReceiveMax is how many messages one request receives at most, so that the largest fit into a
// message of gRPC.
const ReceiveMax = 32

// Send is queue.Queues's.
func (s *Queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	if err := queue.CheckSend(name, bodies, delay); err != nil {
		return err
	}
	for len(bodies) > 0 {
		n, size := 0, 0
		for n < len(bodies) && (n == 0 || size+len(bodies[n]) <= sendBytes) {
			size += len(bodies[n])
			n++
		}
		in := &portsv1.SendRequest{Queue: name, Bodies: bodies[:n], Delay: int64(delay)}
		if _, err := call(ctx, s.client, s.rpc.Send, in); err != nil {
			return fault.Wrap(err, "send to queue %s", name)
		}
		bodies = bodies[n:]
	}
	return nil
}

// Receive is queue.Queues's. It returns at most ReceiveMax messages.
func (s *Queues) Receive(ctx context.Context, name string, most int, visibility, wait time.Duration) (
	[]queue.Message, error) {
	if err := queue.CheckReceive(name, most, visibility, wait); err != nil {
		return nil, err
	}
	in := &portsv1.ReceiveRequest{Queue: name, Max: int32(min(most, ReceiveMax)), Visibility: int64(visibility),
		Wait: int64(wait)}
	got, err := longCall(ctx, s.client, s.rpc.Receive, in, callTimeout+wait)
	if err != nil {
		return nil, fault.Wrap(err, "receive from queue %s", name)
	}
	out := make([]queue.Message, 0, len(got.Messages))
	for _, m := range got.Messages {
		out = append(out, queue.Message{ID: m.GetId(), Body: m.GetBody(), Receives: int(m.GetReceives()),
			Receipt: m.GetReceipt()})
	}
	return out, nil
}

// Extend is queue.Queues's.
func (s *Queues) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if err := queue.CheckExtend(name, visibility); err != nil {
		return err
	}
	_, err := call(ctx, s.client, s.rpc.Extend,
		&portsv1.ReceiptRequest{Queue: name, Receipt: valid(receipt), Span: int64(visibility)})
	return fault.Wrap(err, "extend a message of queue %s", name)
}

// Ack is queue.Queues's.
func (s *Queues) Ack(ctx context.Context, name string, receipts []string) error {
	if err := queue.CheckName(name); err != nil {
		return err
	}
	in := &portsv1.AckRequest{Queue: name}
	for _, r := range receipts {
		in.Receipts = append(in.Receipts, valid(r))
	}
	_, err := call(ctx, s.client, s.rpc.Ack, in)
	return fault.Wrap(err, "acknowledge messages of queue %s", name)
}

// Nack is queue.Queues's.
func (s *Queues) Nack(ctx context.Context, name, receipt string, delay time.Duration) error {
	if err := queue.CheckNack(name, delay); err != nil {
		return err
	}
	_, err := call(ctx, s.client, s.rpc.Nack,
		&portsv1.ReceiptRequest{Queue: name, Receipt: valid(receipt), Span: int64(delay)})
	return fault.Wrap(err, "give back a message of queue %s", name)
}

// Secrets implements secret.Store. Use Client.Secrets to get one.
type Secrets struct {
	client *Client
	rpc    portsv1.SecretsClient
}

var _ secret.Store = (*Secrets)(nil)

// Get is secret.Store's. The server has the allowlist.
func (s *Secrets) Get(ctx context.Context, name string) (secret.Value, error) {
	if err := secret.CheckName(name); err != nil {
		return secret.Value{}, err
	}
	v, err := call(ctx, s.client, s.rpc.Get, &portsv1.SecretName{Name: name})
	if err != nil {
		return secret.Value{}, fault.Wrap(err, "get the secret %s", name)
	}
	return secret.NewValue(v.GetText()), nil
}

package fakepubsub

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// pushers is the most concurrent pushes of one subscription.
const pushers = 64

// push sends a subscription's messages to its endpoint until the server ends.
func (s *Server) push(sub *subscription) {
	free := make(chan struct{}, pushers)
	for s.ended.Err() == nil {
		select {
		case free <- struct{}{}:
		case <-s.ended.Done():
			return
		}
		r, next := s.tryPush(sub)
		if r == nil {
			<-free
			next.wait(s.ended)
			continue
		}
		s.pushing.Go(func() {
			defer func() { <-free }()
			s.settlePush(sub, r.AckId, s.post(sub, r))
		})
	}
}

// tryPush leases one message that can be delivered now, or returns when to look
// again.
func (s *Server) tryPush(sub *subscription) (*pb.ReceivedMessage, look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.deliver(sub, 1); len(got) > 0 {
		return got[0], look{}
	}
	return nil, s.next(sub)
}

// settlePush ends the delivery of a push.
func (s *Server) settlePush(sub *subscription, id string, accepted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m, holds, _ := s.find(sub, id); {
	case m == nil || !holds:
	case accepted:
		sub.remove(m)
	default:
		s.fail(sub, m, s.clock())
	}
}

// pushBody is the body of a push. Pub/Sub spells two members twice.
type pushBody struct {
	DeliveryAttempt int32       `json:"deliveryAttempt,omitempty"`
	Message         pushMessage `json:"message"`
	Subscription    string      `json:"subscription"`
}

type pushMessage struct {
	Attributes       map[string]string `json:"attributes,omitempty"`
	Data             []byte            `json:"data,omitempty"`
	MessageID        string            `json:"messageId"`
	MessageIDSnake   string            `json:"message_id"`
	PublishTime      time.Time         `json:"publishTime"`
	PublishTimeSnake time.Time         `json:"publish_time"`
}

// post sends one message and reports whether the endpoint accepted it in time.
func (s *Server) post(sub *subscription, r *pb.ReceivedMessage) (accepted bool) {
	published := r.Message.PublishTime.AsTime()
	body, err := json.Marshal(pushBody{r.DeliveryAttempt, pushMessage{r.Message.Attributes, r.Message.Data,
		r.Message.MessageId, r.Message.MessageId, published, published}, sub.config.Name})
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ended, sub.deadline())
	defer cancel()
	to := sub.config.PushConfig.PushEndpoint
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("From", "noreply@google.com")
	if token := sub.config.PushConfig.GetOidcToken(); token != nil {
		audience := token.Audience
		if audience == "" {
			audience = to
		}
		if made := s.token(token.ServiceAccountEmail, audience); made != "" {
			request.Header.Set("Authorization", "Bearer "+made)
		}
	}
	response, err := s.pushes.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	switch response.StatusCode {
	case http.StatusProcessing, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return true
	}
	return false
}

// token returns the identity token of a push, or "".
func (s *Server) token(account, audience string) string {
	if s.options.Token != nil {
		return s.options.Token(account, audience)
	}
	return Token(account, audience, s.Now())
}

// Token returns the identity token of a push as Cloud Run passes it on: it has
// checked the signature and replaced it.
func Token(account, audience string, now time.Time) string {
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err) // maps of strings and numbers
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	return strings.Join([]string{
		part(map[string]any{"alg": "RS256", "typ": "JWT"}),
		part(map[string]any{"iss": "https://accounts.google.com", "aud": audience, "email": account,
			"email_verified": true, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}),
		"SIGNATURE_REMOVED_BY_GOOGLE",
	}, ".")
}

package fakegcs

import (
	"encoding/json"
	"net/http"
)

// NotificationConfig is a configuration of a bucket's notifications.
type NotificationConfig struct {
	ID     string   `json:"id"`
	Topic  string   `json:"topic"` // "//pubsub.googleapis.com/projects/P/topics/T"
	Prefix string   `json:"object_name_prefix,omitempty"`
	Events []string `json:"event_types,omitempty"`
}

// SetNotifications sets the configurations that a bucket's list of them has. They do not
// decide about Options.Notify.
func (s *Server) SetNotifications(bucket string, configs ...NotificationConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notifications == nil {
		s.notifications = map[string][]NotificationConfig{}
	}
	s.notifications[bucket] = configs
}

// serveNotifications answers with the configurations of a bucket.
func (s *Server) serveNotifications(w http.ResponseWriter, bucket string) {
	s.mu.Lock()
	found := s.notifications[bucket]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"items": found}) // to a client that may have gone
}

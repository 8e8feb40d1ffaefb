package command

import (
	"context"
	"errors"
	"strings"
	"time"

	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
)

// awaitBegin returns the run that find finds by text. If there is none, and text is an id, or a prompts file is not a
// run yet, it says so once and waits until the run has begun. When ctx ends it returns Canceled.
func (s *statusView) awaitBegin(
	ctx context.Context, text string, find func() (status.Status, error),
) (status.Status, error) {
	for said := false; ; said = true {
		r, err := find()
		if err == nil || !fault.Is(err, fault.NotFound) || !s.mayBegin(ctx, text) {
			return r, err
		}
		if !said {
			_ = s.say("%s", withLocationFlags("run "+progress.SanitizeLine(text, nameColumns)+
				" has not begun: waiting until `rollout up` starts it", s.location))
		}
		select {
		case <-ctx.Done():
			return r, fault.WithKind(fault.Canceled, errors.New("interrupted"), "wait for the run to begin")
		case <-time.After(watchInterval):
		}
	}
}

// mayBegin reports whether a run that does not exist may come into being by itself.
func (s *statusView) mayBegin(ctx context.Context, text string) bool {
	if identity.RunID(strings.ToUpper(text)).Valid() {
		return true
	}
	o, err := s.service.Overview(ctx, status.Page{Limit: 1})
	if err != nil {
		return false
	}
	for _, u := range o.Uploads {
		name, _, _ := strings.Cut(u.Key[strings.LastIndexByte(u.Key, '/')+1:], ".")
		if input.IsPromptsKey(u.Key) && name == text {
			return true
		}
	}
	return false
}

package openai

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Bounds of a completion.
const (
	maxCompletion = 512 << 10 // bytes of the body, which may name blob.MaxParts parts
	joinLasts     = 10 * time.Minute
	// joinReserve is the time that a function keeps to abort a join and to answer; one that may run
	// for a short time keeps a quarter of it.
	joinReserve = 20 * time.Second
)

// completion is the body of a request to complete an upload.
type completion struct {
	PartIDs []string `json:"part_ids"`
	MD5     string   `json:"md5"`
}

// claim names what a completion joins: the same parts in the same order, with the same sum.
func (c completion) claim() string {
	return identity.Content([]byte(strings.Join(c.PartIDs, "\n") + "\n\n" + strings.ToLower(c.MD5))).String()
}

// ranges are the parts of an upload by their ids.
func (c completion) ranges(upload string) (out []blob.Range, err error) {
	if len(c.PartIDs) == 0 || len(c.PartIDs) > blob.MaxParts {
		return nil, badParam("part_ids", "must name 1 to %d parts, names %d", blob.MaxParts, len(c.PartIDs))
	}
	for _, id := range c.PartIDs {
		if !isName(id, partPrefix) {
			return nil, badParam("part_ids", "no part has the id %.80q", id)
		}
		out = append(out, blob.Range{Key: record.UploadPartKey(upload, id)})
	}
	return out, nil
}

// completeUpload joins the parts in the order that the client names, and makes the file. It may
// be repeated: its answer may have been lost. The document of the upload decides every race:
//
//	claim (what is joined, and where) ─▶ join, check ─▶ completed ─▶ file/<id> ─▶ parts are removed
//
// Each claim has its own object, so that no try takes the object of another one for its own.
func (s *Server) completeUpload(w http.ResponseWriter, r *http.Request) (any, error) {
	conn, ctx := http.NewResponseController(w), r.Context()
	extend(conn)
	var c completion
	if err := readJSON(http.MaxBytesReader(w, r.Body, maxCompletion), &c); err != nil {
		return nil, err
	}
	until := time.Now().Add(joinLasts)
	_, _ = conn.SetReadDeadline(until), conn.SetWriteDeadline(until) // recorders of tests have none
	u, err := s.loadUpload(r)
	if err != nil {
		return nil, err
	}
	ranges, err := c.ranges(u.ID)
	if err == nil {
		u, err = s.claimUpload(ctx, u.ID, c.claim())
	}
	if err == nil && u.Status == uploadPending {
		u, err = s.joinUpload(ctx, u, ranges, c.MD5)
	}
	if err != nil {
		return nil, err
	}
	return s.finishUpload(ctx, u)
}

// claimUpload notes what is about to be joined. While the upload has another claim, or is over,
// it is Conflict; an upload that the same claim has completed is returned as it is.
func (s *Server) claimUpload(ctx context.Context, id, claim string) (record.Upload, error) {
	return s.changeUpload(ctx, id, func(u *record.Upload) (bool, error) {
		same := u.Joining == claim
		switch {
		case u.Status == uploadCompleted && same:
			return false, nil
		case u.Status != uploadPending:
			return false, errIsOver(*u)
		case u.Joining == "":
			u.Joining = claim
			u.File.Input.Key = record.FilesPrefix + u.File.ID + "." + claim[:16] + input.Suffix(u.File.Input.Packed)
			return true, nil
		case !same:
			return false, &fault.Error{Kind: fault.Conflict, Err: errors.New("another request completes the upload otherwise"),
				Remedy: "repeat that request, or cancel the upload"}
		}
		return false, nil
	})
}

// joinUpload makes the object of the claim, and notes that the upload is completed. If the client
// is wrong about the parts, it gives up the claim.
func (s *Server) joinUpload(ctx context.Context, u record.Upload, ranges []blob.Range,
	sum string) (record.Upload, error) {
	info, err := s.joined(ctx, u, ranges, sum)
	if fault.Is(err, fault.Invalid) {
		return u, errors.Join(err, s.unclaim(ctx, u))
	}
	if err != nil {
		return u, err
	}
	now, err := s.changeUpload(ctx, u.ID, func(now *record.Upload) (bool, error) {
		if now.Status != uploadPending || now.Joining != u.Joining {
			return false, nil
		}
		now.Status, now.File.Input.Version, now.File.Input.Size = uploadCompleted, info.Version, info.Size
		return true, nil
	})
	switch {
	case err != nil || now.Status == uploadCompleted && now.Joining == u.Joining:
		return now, err
	case now.Status == uploadPending:
		err = fault.New(fault.Conflict, "another request completes the upload otherwise")
	default:
		err = errIsOver(now) // cancelled or expired meanwhile
	}
	return now, errors.Join(err, s.removeJoined(ctx, u))
}

// joined returns the object of the claim, once it is what the client says of it.
func (s *Server) joined(ctx context.Context, u record.Upload, ranges []blob.Range, sum string) (blob.Info, error) {
	within, cancel := ctx, context.CancelFunc(func() {})
	if end, ok := ctx.Deadline(); ok {
		within, cancel = context.WithDeadline(ctx, end.Add(-min(joinReserve, time.Until(end)/4)))
	}
	defer cancel()
	info, err := s.Blobs.Join(within, u.File.Input.Key, ranges)
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) { // by an earlier try
		if made, statErr := s.Blobs.Stat(within, u.File.Input.Key, ""); statErr == nil {
			info, err = made, nil
		} else if !fault.Is(statErr, fault.NotFound) {
			err = statErr
		}
	}
	if err == nil {
		err = s.checkJoined(within, u, info, sum)
	}
	switch {
	case err == nil:
	case within.Err() != nil && ctx.Err() == nil:
		return info, &fault.Error{Kind: fault.Exhausted, Err: fmt.Errorf("joining %d bytes takes longer than a function may "+
			"run", u.Bytes), Remedy: "cancel the upload, and upload fewer bytes in one file, or without md5; or upload the " +
			"file to prompts/ of the bucket"}
	case fault.Is(err, fault.NotFound):
		err = &paramError{"part_ids", fault.WithKind(fault.Invalid, err, "find the parts")}
	}
	return info, err
}

// checkJoined compares the file with what the client says of it. Invalid if it differs.
func (s *Server) checkJoined(ctx context.Context, u record.Upload, info blob.Info, sum string) error {
	if info.Size != u.Bytes {
		return badParam("part_ids", "the parts have %d bytes, and the upload was created with %d", info.Size, u.Bytes)
	}
	if sum == "" {
		return nil
	}
	body, _, err := s.Blobs.Get(ctx, info.Key, blob.GetOptions{Version: info.Version})
	if err != nil {
		return err
	}
	defer body.Close()
	h := md5.New()
	if _, err := io.Copy(h, body); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, sum) {
		return badParam("md5", "the file has the sum %s", got)
	}
	return nil
}

// unclaim gives up a claim whose parts are not what the client says. Every try of the claim
// finds that, so that none needs its object.
func (s *Server) unclaim(ctx context.Context, u record.Upload) error {
	if err := s.removeJoined(ctx, u); err != nil {
		return err
	}
	_, err := s.changeUpload(ctx, u.ID, func(now *record.Upload) (bool, error) {
		if now.Status != uploadPending || now.Joining != u.Joining {
			return false, nil
		}
		now.Joining = ""
		return true, nil
	})
	return err
}

// finishUpload makes the file of an upload that is completed, unless it has been made before; a
// file that was deleted since has no object, and is not made again.
func (s *Server) finishUpload(ctx context.Context, u record.Upload) (any, error) {
	_, err := s.Blobs.Stat(ctx, u.File.Input.Key, "") // not the version, which outlives its object in clouds
	if err == nil {
		_, err = host.Save(ctx, s.Docs, record.FileKey(u.File.ID), u.File, "")
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
		return nil, err
	}
	s.removeParts(ctx, u)
	return s.uploadObject(u), nil
}

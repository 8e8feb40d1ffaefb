package emulators

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"

	"rollout/localstack/gcp/fakefirestore"
	"rollout/shared/document"
	"rollout/shared/document/documenttest"
	"rollout/shared/fault"
	"rollout/shared/gcp"
)

func TestFirestore(t *testing.T) {
	t.Parallel()
	documents(t, fakefirestore.Start(t, fakefirestore.Options{}), documenttest.Features{})
}

// Half of the commits are aborted, or performed and lose their reply. The suite
// passes all the same.
func TestFirestoreUnderFaults(t *testing.T) {
	t.Parallel()
	s := fakefirestore.Start(t, fakefirestore.Options{
		Faults: fakefirestore.Faults{Seed: 7, Aborted: 20, LostReplies: 30},
	})
	documents(t, s, documenttest.Features{LosesReplies: true})
}

// documents runs the suite. Each store is a collection of its own.
func documents(t *testing.T, s *fakefirestore.Server, f documenttest.Features) {
	var collections sync.Map // of the open stores, to reopen them
	open := func(t *testing.T, collection string) document.Store {
		store, err := gcp.NewDocuments(t.Context(), emulated(), gcp.DocumentOptions{
			Collection: collection, Listed: gcp.ListedDocuments(), Spread: 3, SDK: s.ClientOptions(),
		})
		if err != nil {
			t.Fatal(err)
		}
		collections.Store(store, collection)
		return store
	}
	f.Reopen = func(t *testing.T, s document.Store) document.Store {
		collection, _ := collections.Load(s)
		return open(t, collection.(string))
	}
	documenttest.Run(t, func(t *testing.T) document.Store { return open(t, fresh()) }, f)
}

// The environment names the emulator, as for all clients of Google Cloud.
func TestFirestoreEmulatorVariable(t *testing.T) {
	s := fakefirestore.Start(t, fakefirestore.Options{})
	t.Setenv(gcp.FirestoreEmulatorVariable, s.Address)
	docs, err := gcp.NewDocuments(t.Context(), emulated(), gcp.DocumentOptions{Database: "second"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := docs.Create(t.Context(), "run/1", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := docs.Create(t.Context(), "run/1", []byte("x")); !fault.Is(err, fault.Conflict) {
		t.Errorf("second create: %v, want a conflict", err)
	}
}

// A page of large documents ends early, and the next one goes on, also when several
// ranges of names have them.
func TestFirestoreListsLargeDocumentsInPages(t *testing.T) {
	t.Parallel()
	s := fakefirestore.Start(t, fakefirestore.Options{})
	docs, err := gcp.NewDocuments(t.Context(), emulated(), gcp.DocumentOptions{
		Listed: gcp.ListedDocuments(), Spread: 3, SDK: s.ClientOptions(),
	})
	if err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("x"), document.MaxValue)
	for _, kind := range []string{"run", "shard"} { // a listed one and a hashed one
		var want, got []string
		for i := range 40 {
			key := fmt.Sprintf("%s/%02d", kind, i)
			want = append(want, key)
			if _, err := docs.Create(t.Context(), key, large); err != nil {
				t.Fatal(err)
			}
		}
		page, err := docs.List(t.Context(), kind+"/", "", document.MaxPage)
		if err != nil || len(page) == 0 || len(page) == len(want) {
			t.Errorf("the first page has %d of %d documents, %v; want a part", len(page), len(want), err)
		}
		for d, err := range document.All(t.Context(), docs, kind+"/") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, d.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("listed %q, want %q", got, want)
		}
	}
}

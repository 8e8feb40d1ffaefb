package group

import (
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/gpuworker/pipeline/link"
	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/fault"
)

// connect returns both ends of a TLS connection.
func connect(t *testing.T) (a, b *link.Conn) {
	t.Helper()
	c, err := link.NewCredential(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.Config()
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err == nil {
			b, err = link.Accept(t.Context(), raw, config, 10*time.Second)
		}
		accepted <- err
	}()
	if a, err = link.Dial(t.Context(), l.Addr().String(), config, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// meshes returns the ranks of a mesh.
func meshes(t *testing.T, n int, timeout time.Duration) []*Mesh {
	t.Helper()
	out := make([]*Mesh, n)
	for i := range out {
		out[i] = &Mesh{rank: i, peers: make([]*link.Conn, n), timeout: timeout, contract: wire.Latent()}
	}
	for i := range n {
		for k := range i {
			out[i].peers[k], out[k].peers[i] = connect(t)
		}
	}
	return out
}

// together calls f for each rank at once.
func together(ms []*Mesh, f func(m *Mesh)) {
	var all sync.WaitGroup
	for _, m := range ms {
		all.Go(func() { f(m) })
	}
	all.Wait()
}

func TestSumsAddInTheOrderOfTheRanks(t *testing.T) {
	t.Parallel()
	ms := meshes(t, 3, 20*time.Second)
	for _, n := range []int{1, 100, 100_000} { // the last one exceeds what connections buffer
		parts := make([][]float32, 3)
		for rank := range parts {
			for i := range n {
				parts[rank] = append(parts[rank], float32(math.Pow(-7.3, float64((i+rank)%9)))/3)
			}
		}
		want := make([]float32, n)
		for _, p := range parts {
			for i, v := range p {
				want[i] += v
			}
		}
		together(ms, func(m *Mesh) {
			got := slices.Clone(parts[m.Rank()])
			if err := m.AllReduce(got); err != nil || !slices.Equal(got, want) {
				t.Errorf("rank %d, %d numbers: the sum has other bits: %v", m.Rank(), n, err)
			}
		})
	}
}

func TestRanksInDifferentCollectivesFailAtOnce(t *testing.T) {
	t.Parallel()
	ms := meshes(t, 2, 20*time.Second)
	ms[1].number = 5
	began := time.Now()
	together(ms, func(m *Mesh) {
		if _, err := m.AllGather([]byte("x")); !fault.Is(err, fault.Corrupt) {
			t.Errorf("rank %d: %v", m.Rank(), err)
		}
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestRankThatNeverComesIsAFault(t *testing.T) {
	t.Parallel()
	ms := meshes(t, 2, 200*time.Millisecond)
	if _, err := ms[0].AllGather([]byte("x")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("the peer never enters the collective: %v", err)
	}
}

func TestOnlyTheLeaderBroadcasts(t *testing.T) {
	t.Parallel()
	ms := meshes(t, 2, time.Second)
	if err := ms[1].Broadcast(nil); !fault.Is(err, fault.Internal) {
		t.Errorf("rank 1 broadcasts: %v", err)
	}
}

func TestHandshakeNamesEveryKeyThatDiffers(t *testing.T) {
	t.Parallel()
	all := func() []standing {
		out := make([]standing, 3)
		for i := range out {
			out[i] = standing{i, i - 1, Parity{KeyEnabled: "true", KeyMeshSize: "2", KeyBackend: "tls", KeyTimeout: "30s",
				KeyStage: "text", KeyModel: "abc", KeyInputDigest: "false", KeyOutputDigest: "false", KeyFingerprint: "false",
				KeyRecompute: "envelope"}}
			if i > 0 {
				out[i].Parity[KeyCompile], out[i].Parity[KeyCompileMode] = "avx2", "linux/amd64"
			}
		}
		return out
	}
	if err := compare(all()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(s []standing)
		says   []string
	}{
		"a flag": {func(s []standing) { s[2].Parity[KeyInputDigest] = "true" },
			[]string{KeyInputDigest, `rank 2 has "true"`}},
		"two keys": {func(s []standing) { s[1].Parity[KeyModel], s[0].Parity[KeyTimeout] = "x", "1s" },
			[]string{KeyModel, KeyTimeout}},
		"kernels":            {func(s []standing) { s[1].Parity[KeyCompile] = "scalar" }, []string{KeyCompile + ": "}},
		"a missing key":      {func(s []standing) { delete(s[1].Parity, KeyStage) }, []string{KeyStage}},
		"a rank twice":       {func(s []standing) { s[2].Rank = 1 }, []string{"unique"}},
		"rank 0 in the mesh": {func(s []standing) { s[0].MeshRank = 0 }, []string{"outside the mesh"}},
		"a wrong mesh rank":  {func(s []standing) { s[2].MeshRank = 2 }, []string{"contiguous"}},
	} {
		s := all()
		c.change(s)
		err := compare(s)
		for _, word := range c.says {
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v lacks %s", name, err, word)
			}
		}
	}
}

func TestStrangerIsNotLetIn(t *testing.T) {
	t.Parallel()
	var configs []link.Credential
	for range 2 {
		c, err := link.NewCredential(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		configs = append(configs, c)
	}
	own, err := configs[0].Config()
	if err != nil {
		t.Fatal(err)
	}
	other, err := configs[1].Config()
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { _, _ = link.Dial(t.Context(), l.Addr().String(), other, 10*time.Second) }()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.Accept(t.Context(), raw, own, 10*time.Second); !fault.Is(err, fault.Denied) {
		t.Errorf("a rank with another credential: %v", err)
	}
	if got := configs[0].String(); got != "***" {
		t.Errorf("a credential prints as %s", got)
	}
}

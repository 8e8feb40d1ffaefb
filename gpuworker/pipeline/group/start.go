package group

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"rollout/gpuworker/pipeline/link"
	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/fault"
)

// Setup is what rank 0 tells a rank first, as a line of JSON on its standard input.
type Setup struct {
	Session    string          `json:"session"` // of this start of the group
	Rank       int             `json:"rank"`
	Ranks      int             `json:"ranks"` // of the world, with rank 0
	Timeout    time.Duration   `json:"timeout"`
	Credential link.Credential `json:"credential"`
	Stage      string          `json:"stage"` // name of the contract
	Digest     bool            `json:"digest"`
	Debug      bool            `json:"debug"` // log each commitment point
}

// maxLine bounds a line between rank 0 and a rank.
const maxLine = 64 << 10

// ReadSetup reads the first line.
func ReadSetup(r *bufio.Reader) (Setup, error) {
	var s Setup
	if err := readLine(r, &s); err != nil {
		return s, fault.Wrap(err, "read the setup of a rank")
	}
	if s.Rank < 1 || s.Rank >= s.Ranks || s.Timeout <= 0 {
		return s, fault.New(fault.Invalid, "rank %d of %d with a timeout of %v: ranks are 1 to %d", s.Rank, s.Ranks,
			s.Timeout, s.Ranks-1)
	}
	return s, nil
}

func readLine(r *bufio.Reader, v any) error {
	line, err := io.ReadAll(io.LimitReader(lineReader{r}, maxLine))
	if err == nil && len(line) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	return fault.WithKind(fault.Unavailable, err, "a line of JSON")
}

// lineReader ends after a line.
type lineReader struct{ r *bufio.Reader }

func (l lineReader) Read(p []byte) (int, error) {
	for i := range p {
		b, err := l.r.ReadByte()
		if err != nil {
			return i, err
		}
		if b == '\n' {
			return i, io.EOF
		}
		p[i] = b
	}
	return len(p), nil
}

// addresses is the second line to a rank: the addresses by rank; rank 0 has none.
type addresses struct {
	Addresses []string `json:"addresses"`
}

// address is what a rank answers to its setup.
type address struct {
	Address string `json:"address"`
}

// hello is the first block on a connection.
type hello struct {
	Session  string `json:"session"`
	From, To int
}

// Handles are a rank's groups. Mesh is nil on rank 0.
type Handles struct {
	World *World
	Mesh  *Mesh
}

// Close ends all connections.
func (h Handles) Close() {
	h.World.Close()
	if h.Mesh != nil {
		h.Mesh.Close()
	}
}

// Join connects a rank of the mesh: it listens, says where on out, learns the other
// addresses from in, connects to lower ranks and waits for the others. It then compares the
// ranks' settings.
func Join(ctx context.Context, s Setup, in *bufio.Reader, out io.Writer, c wire.Contract, own Parity) (
	h Handles, err error) {
	config, err := s.Credential.Config()
	if err != nil {
		return Handles{}, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return Handles{}, fault.WithKind(fault.Unavailable, err, "listen for ranks")
	}
	defer l.Close()
	if err := json.NewEncoder(out).Encode(address{l.Addr().String()}); err != nil {
		return Handles{}, fault.WithKind(fault.Unavailable, err, "tell the address to rank 0")
	}
	var all addresses
	if err := readLine(in, &all); err != nil {
		return Handles{}, err
	}
	if len(all.Addresses) != s.Ranks {
		return Handles{}, fault.New(fault.Corrupt, "%d addresses of %d ranks", len(all.Addresses), s.Ranks)
	}
	conns := make([]*link.Conn, s.Ranks)
	defer func() {
		if err != nil {
			closeAll(conns)
		}
	}()
	for rank := 1; rank < s.Rank; rank++ {
		if conns[rank], err = dial(ctx, s, rank, all.Addresses[rank], config); err != nil {
			return Handles{}, err
		}
	}
	deadline := time.Now().Add(s.Timeout)
	if err := l.(*net.TCPListener).SetDeadline(deadline); err != nil {
		return Handles{}, fault.WithKind(fault.Internal, err, "listen for ranks")
	}
	for missing := s.Ranks - s.Rank; missing > 0; missing-- { // rank 0 and the higher ones
		raw, err := l.Accept()
		if err != nil {
			return Handles{}, fault.WithKind(fault.Unavailable, err, "rank %d waits for %d ranks", s.Rank, missing)
		}
		conn, err := link.Accept(ctx, raw, config, s.Timeout)
		if err != nil {
			return Handles{}, err
		}
		var from hello
		b, err := readBlock(conn, wire.KindWorld, 0, s.Timeout, nil)
		if err == nil {
			err = json.Unmarshal(b, &from)
		}
		if err != nil || from.Session != s.Session || from.To != s.Rank || from.From < 0 || from.From >= s.Ranks ||
			conns[from.From] != nil || from.From == s.Rank {
			_ = conn.Close()
			return Handles{}, fault.New(fault.Corrupt, "rank %d: a connection from rank %d to rank %d of another session or "+
				"twice: %v", s.Rank, from.From, from.To, err)
		}
		conns[from.From] = conn
	}
	h.World = &World{Rank: s.Rank, Ranks: s.Ranks, peers: conns[:1], timeout: s.Timeout}
	h.Mesh = &Mesh{rank: s.Rank - 1, peers: conns[1:], timeout: s.Timeout, contract: c}
	return h, h.World.handshake(own)
}

// Connect connects rank 0 to all other ranks, whose standard inputs and outputs it gets by
// rank from 1, and compares the ranks' settings.
func Connect(ctx context.Context, s Setup, in []io.Writer, out []*bufio.Reader, own Parity) (h Handles, err error) {
	all := addresses{make([]string, s.Ranks)}
	conns := make([]*link.Conn, s.Ranks)
	defer func() {
		if err != nil {
			closeAll(conns)
		}
	}()
	for rank := 1; rank < s.Ranks; rank++ {
		s.Rank = rank
		if err := json.NewEncoder(in[rank]).Encode(s); err != nil {
			return Handles{}, fault.WithKind(fault.Unavailable, err, "set up rank %d", rank)
		}
	}
	for rank := 1; rank < s.Ranks; rank++ {
		var at address
		if err := readLine(out[rank], &at); err != nil {
			return Handles{}, fault.Wrap(err, "rank %d does not say its address; see its messages above", rank)
		}
		all.Addresses[rank] = at.Address
	}
	config, err := s.Credential.Config()
	if err != nil {
		return Handles{}, err
	}
	for rank := 1; rank < s.Ranks; rank++ {
		if err := json.NewEncoder(in[rank]).Encode(all); err != nil {
			return Handles{}, fault.WithKind(fault.Unavailable, err, "tell rank %d the addresses", rank)
		}
	}
	s.Rank = 0
	for rank := 1; rank < s.Ranks; rank++ {
		if conns[rank], err = dial(ctx, s, rank, all.Addresses[rank], config); err != nil {
			return Handles{}, err
		}
	}
	h.World = &World{Ranks: s.Ranks, peers: conns, timeout: s.Timeout}
	return h, h.World.handshake(own)
}

func dial(ctx context.Context, s Setup, rank int, at string, c *tls.Config) (*link.Conn, error) {
	conn, err := link.Dial(ctx, at, c, s.Timeout)
	if err != nil {
		return nil, fault.Wrap(err, "rank %d", rank)
	}
	b, err := json.Marshal(hello{s.Session, s.Rank, rank})
	if err == nil {
		err = conn.SendBlock(wire.KindWorld, 0, b)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fault.Wrap(err, "rank %d", rank)
	}
	return conn, nil
}

// Parity holds the settings of a rank that must be the same on all of them, by name. Each can
// change which collectives run, or what they compute.
type Parity map[string]string

// Keys of Parity.
const (
	KeyEnabled      = "pipeline_enabled"
	KeyMeshSize     = "mesh_size"
	KeyBackend      = "backend"
	KeyTimeout      = "timeout"
	KeyStage        = "stage"
	KeyModel        = "model"
	KeyInputDigest  = "input_digest"
	KeyOutputDigest = "output_digest"
	KeyFingerprint  = "fingerprint"
	KeyRecompute    = "recompute"
	KeyCompile      = "compile"      // of ranks of the mesh: which kernels compute
	KeyCompileMode  = "compile_mode" // of ranks of the mesh: the platform
)

// ofMesh are the keys that only ranks of the mesh must agree on.
var ofMesh = []string{KeyCompile, KeyCompileMode}

// standing is what a rank says of itself in the start handshake.
type standing struct {
	Rank     int    `json:"rank"`
	MeshRank int    `json:"mesh_rank"` // -1 outside the mesh
	Parity   Parity `json:"parity"`
}

// handshake compares the settings of all ranks, and ends the World's collectives. It is
// Invalid if they differ; the fault names every key that does, and what each rank has.
func (w *World) handshake(own Parity) error {
	b, err := json.Marshal(standing{w.Rank, w.Rank - 1, own})
	if err != nil {
		return fault.WithKind(fault.Internal, err, "start handshake")
	}
	blocks, err := w.AllGather(b)
	if err != nil {
		return fault.Wrap(err, "start handshake")
	}
	w.started = true
	all := make([]standing, len(blocks))
	for i, b := range blocks {
		if err := json.Unmarshal(b, &all[i]); err != nil {
			return fault.WithKind(fault.Corrupt, err, "start handshake: rank %d", i)
		}
	}
	return compare(all)
}

func compare(all []standing) error {
	keys := map[string]bool{}
	for i, s := range all {
		if s.Rank != i || s.MeshRank != i-1 {
			return fault.New(fault.Invalid, "start handshake: rank %d says that it is rank %d, mesh rank %d: "+
				"ranks must be unique and contiguous, and rank 0 outside the mesh", i, s.Rank, s.MeshRank)
		}
		for k := range s.Parity {
			keys[k] = true
		}
	}
	var wrong []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		first := 0
		if slices.Contains(ofMesh, k) {
			first = Leader
		}
		var have []string
		differs := false
		for _, s := range all[first:] {
			v, ok := s.Parity[k]
			differs = differs || !ok || v != all[first].Parity[k]
			have = append(have, fmt.Sprintf("rank %d has %q", s.Rank, v))
		}
		if differs {
			wrong = append(wrong, k+": "+strings.Join(have, ", "))
		}
	}
	if len(wrong) > 0 {
		return &fault.Error{Kind: fault.Invalid, Op: "start handshake",
			Err:    fmt.Errorf("the ranks differ in %s", strings.Join(wrong, "; ")),
			Remedy: "start all ranks with the same program, config and environment"}
	}
	return nil
}

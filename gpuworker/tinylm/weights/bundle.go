package weights

import (
	"bytes"
	"encoding/hex"
	"encoding/json"

	"lukechampine.com/blake3"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/shared/fault"
)

// Bundle holds all parts that are needed to run a model.
type Bundle struct {
	Name      string // Example: "rollout/tiny"
	Model     *model.Model
	Tokenizer *tokenizer.Tokenizer
	Digest    string // blake3-256 of the file, in hex: the model's revision
	ChatTurns bool   // the model was trained on chats that Tokenizer.AppendTurn encodes
}

// format is the value of the metadata key "format": format and version.
const format = "rollout-tiny 1"

// The keys of the metadata.
const (
	keyFormat    = "format"
	keyName      = "name"
	keyConfig    = "config"
	keyTokenizer = "tokenizer"
	keyChat      = "chat"
)

// turns is the value of the metadata key "chat" if Bundle.ChatTurns is true.
const turns = "turns"

// config is model.Config with the JSON keys of the metadata.
type config struct {
	Vocab       int     `json:"vocab"`
	Width       int     `json:"width"`
	Layers      int     `json:"layers"`
	Heads       int     `json:"heads"`
	HeadSize    int     `json:"head_size"`
	Hidden      int     `json:"hidden"`
	Context     int     `json:"context"`
	RopeBase    float32 `json:"rope_base"`
	NormEpsilon float32 `json:"norm_epsilon"`
}

// Pack returns the contents of a file with the model and the tokenizer, with
// matrices in the given encoding. The file declares ChatTurns, since all models
// trained with this library are trained on turns. Pack returns an Invalid fault
// if the tokenizer has more tokens than the model.
func Pack(name string, m *model.Model, t *tokenizer.Tokenizer, e Encoding) ([]byte, error) {
	if t.Vocab() > m.Config().Vocab {
		return nil, fault.New(fault.Invalid, "pack %s: the tokenizer has %d tokens, the model %d",
			name, t.Vocab(), m.Config().Vocab)
	}
	shape, err := json.Marshal(config(m.Config()))
	if err != nil {
		return nil, err
	}
	f := File{Tensors: m.Tensors(), Metadata: map[string]string{
		keyFormat: format, keyName: name, keyConfig: string(shape), keyTokenizer: string(t.Bytes()),
		keyChat: turns,
	}}
	return f.Encode(e)
}

// Load reads the contents of a file that Pack returned. Faults are Corrupt.
func Load(b []byte) (*Bundle, error) {
	f, err := Decode(b)
	if err != nil {
		return nil, err
	}
	if got := f.Metadata[keyFormat]; got != format {
		return nil, fault.New(fault.Corrupt, "weights: the format is %.40q, not %q: "+
			"the file is of another version or was not written by rollout", got, format)
	}
	var shape config
	d := json.NewDecoder(bytes.NewReader([]byte(f.Metadata[keyConfig])))
	d.DisallowUnknownFields()
	if err := d.Decode(&shape); err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "weights: the shape of the model")
	}
	c := model.Config(shape)
	if err := c.Validate(); err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "weights")
	}
	if c.Context*c.HeadSize > maxRotations {
		return nil, fault.New(fault.Corrupt, "weights: a context of %d with heads of %d: their product must be at most %d",
			c.Context, c.HeadSize, maxRotations)
	}
	if n := numbers(f.Tensors); n != c.Parameters() { // checked before memory is allocated for them
		return nil, fault.New(fault.Corrupt, "weights: %d parameters for a model of %d", n, c.Parameters())
	}
	m, err := model.FromTensors(c, f.Tensors)
	if err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "weights")
	}
	t, err := tokenizer.Parse([]byte(f.Metadata[keyTokenizer]))
	if err != nil {
		return nil, fault.Wrap(err, "weights")
	}
	if t.Vocab() > c.Vocab {
		return nil, fault.New(fault.Corrupt, "weights: the tokenizer has %d tokens, the model %d", t.Vocab(), c.Vocab)
	}
	sum := blake3.Sum256(b)
	return &Bundle{Name: f.Metadata[keyName], Model: m, Tokenizer: t, Digest: hex.EncodeToString(sum[:]),
		ChatTurns: f.Metadata[keyChat] == turns}, nil
}

// maxRotations bounds the memory of a model's tables of rotary positions, which
// the sizes of its tensors do not bound.
const maxRotations = 1 << 18

// numbers returns the number of values of all tensors.
func numbers(ts []model.Tensor) (n int) {
	for _, t := range ts {
		n += len(t.Data)
	}
	return n
}

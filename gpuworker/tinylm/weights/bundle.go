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

// Bundle is all that it takes to run a model.
type Bundle struct {
	Name      string // Example: "rollout/tiny"
	Model     *model.Model
	Tokenizer *tokenizer.Tokenizer
	Digest    string // blake3-256 of the file, in hex: the model's revision
	ChatTurns bool   // it learnt chats as the tokenizer's turns
}

// format is the value of the metadata's "format", with a version.
const format = "rollout-tiny 1"

// Names of the metadata.
const (
	keyFormat    = "format"
	keyName      = "name"
	keyConfig    = "config"
	keyTokenizer = "tokenizer"
	keyChat      = "chat"
)

// turns is the value of the metadata's "chat".
const turns = "turns"

// config is model.Config as the metadata spell it.
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

// Pack returns a model as a file, with its matrices in the given encoding. The
// file says that the model knows turns: all that are trained here do. It fails
// with Invalid if the tokenizer has more tokens than the model.
func Pack(name string, m *model.Model, t *tokenizer.Tokenizer, e Encoding) ([]byte, error) {
	if t.Vocab() > m.Config().Vocab {
		return nil, fault.New(fault.Invalid, "pack %s: the tokenizer has %d tokens, the model %d", name, t.Vocab(), m.Config().Vocab)
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

// Load reads what Pack returned. Faults are Corrupt.
func Load(b []byte) (*Bundle, error) {
	f, err := Decode(b)
	if err != nil {
		return nil, err
	}
	if got := f.Metadata[keyFormat]; got != format {
		return nil, fault.New(fault.Corrupt, "weights: the format is %.40q, not %q: this is no model of rollout's, or of another version", got, format)
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
		return nil, fault.New(fault.Corrupt, "weights: a context of %d with heads of %d: their product is at most %d", c.Context, c.HeadSize, maxRotations)
	}
	if n := numbers(f.Tensors); n != c.Parameters() { // before memory is taken for them
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

// maxRotations bounds what a model tabulates of positions, which no tensor's
// size does.
const maxRotations = 1 << 18

func numbers(ts []model.Tensor) (n int) {
	for _, t := range ts {
		n += len(t.Data)
	}
	return n
}

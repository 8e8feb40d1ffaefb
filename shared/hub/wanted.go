package hub

import (
	"path"
	"slices"
	"strings"
)

// weights are the endings of files of weights, by their preference: a server takes those of
// the first ending that a model has.
var weights = [][]string{
	{".safetensors"}, {".bin", ".pt", ".pth"}, {".gguf"},
}

// foreign are the endings of weights for other programs than inference servers.
var foreign = []string{".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".tflite", ".mlmodel", ".zip", ".tar.gz"}

// Serving returns the model with only the files that an inference server loads: of several
// formats of weights the one that it prefers, without those for other programs, pictures
// and hidden files. Many models have each tensor two or three times.
func (m Model) Serving() Model {
	keep := -1
	for i, endings := range weights {
		if slices.ContainsFunc(m.Files, func(f File) bool { return atTop(f.Path) && hasEnding(f.Path, endings) }) {
			keep = i
			break
		}
	}
	m.Files = slices.DeleteFunc(slices.Clone(m.Files), func(f File) bool {
		for i, endings := range weights {
			if keep >= 0 && i != keep && hasEnding(f.Path, endings) {
				return true
			}
		}
		// Meta's releases have their own format of the same weights there.
		return hasEnding(f.Path, foreign) || strings.HasPrefix(f.Path, "original/") || hidden(f.Path) ||
			slices.Contains([]string{".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp4", ".pdf"}, path.Ext(f.Path))
	})
	return m
}

// OnlyGGUF reports whether the model has weights for llama.cpp and in no other format.
func (m Model) OnlyGGUF() bool {
	any := func(endings []string) bool {
		return slices.ContainsFunc(m.Files, func(f File) bool { return hasEnding(f.Path, endings) })
	}
	last := len(weights) - 1
	return any(weights[last]) && !slices.ContainsFunc(weights[:last], any)
}

// Only returns the model with only the files at the paths.
func (m Model) Only(paths []string) Model {
	m.Files = slices.DeleteFunc(slices.Clone(m.Files), func(f File) bool { return !slices.Contains(paths, f.Path) })
	return m
}

func atTop(name string) bool { return !strings.Contains(name, "/") }

func hasEnding(name string, endings []string) bool {
	return slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(name, e) })
}

// hidden reports whether a part of the path begins with a dot. A path that leads out of the
// model's folder is not hidden: who stores it refuses it.
func hidden(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return strings.HasPrefix(part, ".") && part != "." && part != ".."
	})
}

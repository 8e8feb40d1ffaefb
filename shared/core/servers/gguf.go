package servers

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Variables of llama.cpp that name files, as its arguments do.
const (
	LlamaCppModel     = "LLAMA_ARG_MODEL"
	LlamaCppProjector = "LLAMA_ARG_MMPROJ"
)

// NamesGGUF reports whether the arguments or variables of llama.cpp's server name the file
// that it takes of a model of the hub. The model's tag then tells nothing.
func NamesGGUF(arguments []string, variables map[string]string) bool {
	s, _ := Of(LlamaCpp)
	for _, flag := range []string{"--hf-file", "-hff"} {
		if _, given := s.Value(arguments, flag); given {
			return true
		}
	}
	return variables["LLAMA_ARG_HF_FILE"] != ""
}

// GGUF is the files of a model that llama.cpp loads.
type GGUF struct {
	Model     []string // its parts in order, mostly one; llama.cpp is told the first
	Projector string   // of a model that sees or hears; "" if there is none
}

// Files returns all files.
func (g GGUF) Files() []string {
	if g.Projector == "" {
		return g.Model
	}
	return append(slices.Clone(g.Model), g.Projector)
}

// defaultTags are those that llama.cpp looks for if its user names none.
var defaultTags = []string{"Q4_K_M", "Q8_0"}

// beside are words in the names of .gguf files that are no model of their own.
var beside = []string{"mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-"}

var (
	partOf  = regexp.MustCompile(`(?i)^(.+)-([0-9]{5})-of-([0-9]{5})\.gguf$`)
	lastTag = regexp.MustCompile(`(?i)[-.]([a-z0-9_]+)$`)
	number  = regexp.MustCompile(`[0-9]+`)
)

// PickGGUF returns which of a model's files llama.cpp takes for a tag such as "Q4_K_M": the
// first by name with the tag, with its parts, and the projector that is nearest to it. ""
// takes the default one. ok is false if there is none.
func PickGGUF(paths []string, tag string) (g GGUF, ok bool) {
	paths = slices.Sorted(slices.Values(paths))
	first, ok := pickModel(paths, tag)
	if !ok {
		return g, false
	}
	g.Model = []string{first}
	if part := partOf.FindStringSubmatch(first); part != nil {
		g.Model = slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
			other := partOf.FindStringSubmatch(p)
			return other == nil || other[1] != part[1] || other[3] != part[3]
		})
	}
	g.Projector = pickProjector(paths, first)
	return g, true
}

func pickModel(paths []string, tag string) (string, bool) {
	candidates := slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		part := partOf.FindStringSubmatch(p)
		return !strings.HasSuffix(p, ".gguf") || part != nil && part[2] != "00001" ||
			slices.ContainsFunc(beside, func(word string) bool { return strings.Contains(path.Base(p), word) })
	})
	tags := defaultTags
	if tag != "" {
		tags = []string{tag}
	}
	for _, t := range tags {
		pattern := regexp.MustCompile(`(?i)` + regexp.QuoteMeta(t) + `[.-]`)
		if i := slices.IndexFunc(candidates, pattern.MatchString); i >= 0 {
			return candidates[i], true
		}
	}
	if tag != "" || len(candidates) == 0 {
		return "", false
	}
	return candidates[0], true
}

// pickProjector returns the projector in the model's folder or the nearest one above it; of
// several the one whose weights have the most similar size.
func pickProjector(paths []string, model string) string {
	all := slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		folder := path.Dir(p)
		return !strings.HasSuffix(p, ".gguf") || !strings.Contains(p, "mmproj") ||
			folder != "." && !strings.HasPrefix(model, folder+"/")
	})
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(b, "/"), strings.Count(a, "/")),
			cmp.Compare(distance(a, model), distance(b, model)))
	})
}

func distance(a, b string) int {
	d := bits(a) - bits(b)
	return max(d, -d)
}

// bits returns the bits of a weight as a file's name tells: 4 for "x-Q4_K_M.gguf", or 0.
func bits(name string) int {
	name = strings.TrimSuffix(name, ".gguf")
	if part := partOf.FindStringSubmatch(name + ".gguf"); part != nil {
		name = part[1]
	}
	tag := lastTag.FindStringSubmatch(name)
	if tag == nil {
		return 0
	}
	n, err := strconv.Atoi(number.FindString(tag[1]))
	if err != nil {
		return 0
	}
	return n
}

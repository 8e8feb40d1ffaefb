package models

import (
	"regexp"
	"strings"

	"rollout/shared/fault"
)

var (
	commitName = regexp.MustCompile(`^[0-9a-f]{40}$`)
	modelName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?$`)
	tagName    = regexp.MustCompile(`^[A-Z0-9][A-Z0-9._-]{0,63}$`)
)

// DefaultTag is the tag of the .gguf files that llama.cpp takes of a model without a tag.
const DefaultTag = "GGUF"

// SplitTag splits a name such as "org/model:Q4_K_M" into the hub's name of the model and a
// tag, which says which of the model's .gguf files are meant. A tag is the same in small
// letters. Models of other formats have none: all of their files belong together.
func SplitTag(name string) (model, tag string) {
	model, tag, _ = strings.Cut(name, ":")
	return model, strings.ToUpper(tag)
}

// Tagged returns the name of a model and a tag.
func Tagged(model, tag string) string { return model + ":" + tag }

// CheckName refuses, as Invalid, a name that is not like a model's of the hub.
func CheckName(name string) error {
	if !modelName.MatchString(name) || strings.Contains(name, "..") {
		return &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "%.128q is not a name of a model", name),
			Remedy: "write one such as org/model, of letters, digits, -, _ and ."}
	}
	return nil
}

// CheckTagged is CheckName for a name that may have a tag in capital letters.
func CheckTagged(name string) error {
	model, tag, tagged := strings.Cut(name, ":")
	if tagged && (!tagName.MatchString(tag) || strings.Contains(tag, "..") || !strings.Contains(model, "/")) {
		return &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "%.128q is not a name of a model", name),
			Remedy: "write one such as org/model:Q4_K_M"}
	}
	return CheckName(model)
}

// checkNamed is CheckTagged for a model of the hub, and CheckName for another one.
func checkNamed(name, revision string) error {
	if revision == "" {
		return CheckName(name)
	}
	return CheckTagged(name)
}

// IsCommit reports whether a revision is a commit, which always means the same files.
func IsCommit(revision string) bool { return commitName.MatchString(revision) }

package emulators

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// The default service is the emulator that the drivers are tested against. It
// needs no token and listens on the loopback interface.
func TestComposeFileNeedsNoToken(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image       string
			Profiles    []string
			Ports       []string
			Environment map[string]*string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	pins, err := os.ReadFile("../../scripts/emulators/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	pinned := regexp.MustCompile(`(?m)^ministack==(\S+)`).FindSubmatch(pins)
	defaults := 0
	for name, s := range file.Services {
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s listens on %s", name, p)
			}
		}
		if len(s.Profiles) == 0 {
			defaults++
			if pinned == nil || s.Image != "ministackorg/ministack:"+string(pinned[1]) {
				t.Errorf("%s is %s, but the drivers are tested against %s", name, s.Image, pinned)
			}
		}
		for variable, value := range s.Environment {
			if strings.Contains(strings.ToLower(variable), "token") && (len(s.Profiles) == 0 || value != nil) {
				t.Errorf("%s sets a token", name)
			}
		}
	}
	if defaults != 1 {
		t.Errorf("%d services start by default, want 1", defaults)
	}
}

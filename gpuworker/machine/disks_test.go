package machine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// computer is a machine whose programs note their calls.
type computer struct {
	root    string
	mounted []string // folders that are mount points
	label   string   // of the first disk
	fails   string   // the program that fails
	refused []string // the beginnings of calls that fail
	calls   []string
	out     bytes.Buffer
}

func (c *computer) run(_ context.Context, name string, args ...string) (string, error) {
	line := strings.ReplaceAll(strings.Join(append([]string{name}, args...), " "), c.root, "")
	switch {
	case name == "mountpoint":
		if slices.Contains(c.mounted, strings.TrimPrefix(line, "mountpoint -q ")) {
			return "", nil
		}
		return "", errors.New("is not a mountpoint")
	case name == c.fails:
		return "", errors.New(name + " failed")
	}
	c.calls = append(c.calls, line)
	if slices.ContainsFunc(c.refused, func(begin string) bool { return strings.HasPrefix(line, begin) }) {
		return "", errors.New(name + " refused")
	}
	if name == "blkid" {
		return c.label + "\n", nil
	}
	return "", nil
}

// disk adds a disk of the machine by its name below /dev/disk/by-id.
func (c *computer) disk(t *testing.T, id, device string) {
	t.Helper()
	for _, dir := range []string{"dev", "dev/disk/by-id"} {
		if err := os.MkdirAll(filepath.Join(c.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	at := filepath.Join(c.root, "dev", device)
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at, filepath.Join(c.root, "dev/disk/by-id", id)); err != nil {
		t.Fatal(err)
	}
}

func (c *computer) mount(t *testing.T) {
	t.Helper()
	if err := (Disks{Root: c.root, Run: c.run, Out: &c.out}).Mount(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func newComputer(t *testing.T) *computer {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &computer{root: root}
}

func bindsFrom(at string) []string {
	return []string{
		"mount --bind " + at + "/docker /var/lib/docker",
		"mount --bind " + at + "/containerd /var/lib/containerd",
		"mount --bind " + at + "/models /var/lib/rollout/models",
		"mount --bind " + at + "/model /var/lib/rollout/model",
	}
}

func TestImagesAndModelsLieOnTheMachinesOwnDisk(t *testing.T) {
	t.Parallel()
	const amazons = "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS123"
	for name, c := range map[string]struct {
		id, label string
		mounted   []string
		want      []string
	}{
		"a new disk": {amazons, "", nil, append([]string{"blkid -s LABEL -o value /dev/nvme1n1",
			"mkfs.ext4 -q -F -m 0 -E nodiscard -L rollout /dev/nvme1n1",
			"mount -o noatime /dev/nvme1n1 /mnt/rollout"}, bindsFrom("/mnt/rollout")...)},
		"a disk of Google's": {"google-local-nvme-ssd-0", "", nil, append([]string{"blkid -s LABEL -o value /dev/nvme1n1",
			"mkfs.ext4 -q -F -m 0 -E nodiscard -L rollout /dev/nvme1n1",
			"mount -o noatime /dev/nvme1n1 /mnt/rollout"}, bindsFrom("/mnt/rollout")...)},
		"after a reboot, its files stay": {amazons, "rollout", nil, append([]string{"blkid -s LABEL -o value /dev/nvme1n1",
			"mount -o noatime /dev/nvme1n1 /mnt/rollout"}, bindsFrom("/mnt/rollout")...)},
		"the image has mounted it": {amazons, "", []string{imageMount}, bindsFrom(imageMount)},
		"again": {amazons, "", []string{ownMount, "/var/lib/docker", "/var/lib/containerd", hubModels, fetchedModel},
			nil},
	} {
		m := newComputer(t)
		m.label, m.mounted = c.label, c.mounted
		m.disk(t, c.id, "nvme1n1")
		if err := os.Symlink(filepath.Join(m.root, "dev/nvme1n1"), filepath.Join(m.root, "dev/disk/by-id",
			c.id+"-ns-1")); err != nil { // another name of it
			t.Fatal(err)
		}
		m.mount(t)
		if !slices.Equal(m.calls, c.want) {
			t.Errorf("%s:\n got %s\nwant %s", name, strings.Join(m.calls, "\n     "), strings.Join(c.want, "\n     "))
		}
		if !strings.Contains(m.out.String(), "images and models lie on its own disk") {
			t.Errorf("%s: it says %s", name, &m.out)
		}
	}
}

// A machine with several disks uses them as one, also after a reboot. Where that does not work
// it uses the first.
func TestSeveralDisksAreUsedAsOne(t *testing.T) {
	t.Parallel()
	const disks, joined, good = " /dev/nvme1n1 /dev/nvme2n1", "/dev/md/rollout", "rollout: images"
	const assemble = "mdadm --assemble /dev/md/rollout" + disks
	const create = "mdadm --create /dev/md/rollout --run --homehost=any --level=0 --raid-devices=2" + disks
	const stop = "mdadm --stop --scan"
	format := func(device string) string { return "mkfs.ext4 -q -F -m 0 -E nodiscard -L rollout " + device }
	for name, c := range map[string]struct {
		label, found string
		refused      []string
		joins        []string // how the disks are joined
		device, said string
	}{
		"new disks": {"", "", []string{"mdadm --assemble"}, []string{assemble, create},
			joined, good},
		"after a reboot, found by the system": {"rollout", "dev/md/rollout", nil, nil, joined, good},
		"after a reboot":                      {"rollout", "", nil, []string{assemble}, joined, good},
		"an array of too few disks": {"", "", []string{assemble, create}, []string{assemble, create, stop},
			"/dev/nvme1n1", "rollout: only the first of its 2 disks is used: mdadm refused\n"},
		"without the program": {"", "", []string{"mdadm"}, []string{assemble, create, stop}, "/dev/nvme1n1",
			"rollout: only the first of its 2 disks is used: mdadm refused\n"},
	} {
		m := newComputer(t)
		m.label, m.refused = c.label, c.refused
		m.disk(t, "google-local-nvme-ssd-0", "nvme1n1")
		m.disk(t, "google-local-nvme-ssd-1", "nvme2n1")
		if c.found != "" {
			at := filepath.Join(m.root, c.found)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		m.mount(t)
		want := append(slices.Clone(c.joins), "blkid -s LABEL -o value "+c.device)
		if c.label == "" {
			want = append(want, format(c.device))
		}
		want = append(append(want, "mount -o noatime "+c.device+" /mnt/rollout"), bindsFrom(ownMount)...)
		if !slices.Equal(m.calls, want) {
			t.Errorf("%s:\n got %s\nwant %s", name, strings.Join(m.calls, "\n     "), strings.Join(want, "\n     "))
		}
		if said := m.out.String(); !strings.HasPrefix(said, c.said) {
			t.Errorf("%s: it says %s", name, said)
		}
	}
}

// The image of the machines may have the engine's image, which a mount would hide.
func TestImagesOfTheMachinesImageStayInSight(t *testing.T) {
	t.Parallel()
	for folder, image := range map[string]string{
		"/var/lib/docker":     "image/overlay2/imagedb/content/sha256/8f3e",
		"/var/lib/containerd": "io.containerd.content.v1.content/blobs/sha256/8f3e",
	} {
		m := newComputer(t)
		m.disk(t, "google-local-nvme-ssd-0", "nvme1n1")
		m.label = diskLabel
		at := filepath.Join(m.root, folder, image)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		m.mount(t)
		bound := slices.DeleteFunc(m.calls, func(call string) bool { return !strings.HasPrefix(call, "mount --bind") })
		want := slices.DeleteFunc(bindsFrom(ownMount), func(call string) bool { return strings.HasSuffix(call, folder) })
		if !slices.Equal(bound, want) {
			t.Errorf("%s has images: got %q, want %q", folder, bound, want)
		}
		if said := m.out.String(); !strings.Contains(said, folder+" stays on the root disk: it has images\n") ||
			!strings.Contains(said, "rollout: models lie on its own disk") {
			t.Errorf("%s has images: it says %s", folder, said)
		}
	}
}

func TestMachineWorksWithoutItsOwnDisk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		id, fails, want string
	}{
		"none":                {"", "", "it has no disks of its own"},
		"a disk over the net": {"nvme-Amazon_Elastic_Block_Store_vol1", "", "it has no disks of its own"},
		"a broken one": {"google-local-nvme-ssd-0", "mkfs.ext4", "its own disks can't be used, all stays on the root " +
			"disk: mkfs.ext4 failed"},
		"one that can't be mounted": {"google-local-nvme-ssd-0", "mount", "its own disks can't be used"},
	} {
		m := newComputer(t)
		m.fails = c.fails
		if c.id != "" {
			m.disk(t, c.id, "nvme1n1")
		}
		m.mount(t)
		if !strings.Contains(m.out.String(), c.want) || slices.ContainsFunc(m.calls,
			func(call string) bool { return strings.HasPrefix(call, "mount --bind") }) {
			t.Errorf("%s: it says %q and calls %q, want %q", name, &m.out, m.calls, c.want)
		}
	}
}

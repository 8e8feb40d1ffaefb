package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"rollout/shared/fault"
)

// Disks puts what machines fetch on their own NVMe disks, which are faster than a root
// disk over the network and cost nothing: Docker's images, and models. It is run before
// Docker starts, at each boot.
//
//	mounted by the image ─┐
//	                      ├─▶ docker, containerd, models ──mount --bind──▶ where programs look for them
//	a disk ─mkfs─▶ mount ─┘
//
// A machine without such disks keeps all on its root disk.
type Disks struct {
	Root string // of the file system
	// Run runs a program and returns its output.
	Run func(ctx context.Context, name string, args ...string) (string, error)
	Out io.Writer // gets a line that says what was done
}

const (
	// imageMount is where Amazon's Deep Learning images mount all disks of a machine as one.
	imageMount = "/opt/dlami/nvme"
	ownMount   = "/mnt/rollout"
	diskLabel  = "rollout"
	// stripes is the device of several disks as one.
	stripes = "/dev/md/rollout"
)

// ownDisks match the names of disks that belong to the machine, and not to the network.
var ownDisks = []string{
	"dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_*",
	"dev/disk/by-id/google-local-nvme-ssd-*",
	"dev/disk/by-id/google-local-ssd-*",
}

// images match what Docker and containerd keep of images, in the folders of moved.
var images = []string{"image/*/imagedb/content/sha256/*", "io.containerd.content.v1.content/blobs/sha256/*"}

// moved are the folders that lie on the machine's own disk, by their names there.
var moved = []struct{ name, at string }{
	{"docker", "/var/lib/docker"}, {"containerd", "/var/lib/containerd"}, {"models", hubModels}, {"model", fetchedModel},
}

// Mount finds a disk, mounts it, and moves the folders to it. What does not work is
// reported, and the machine goes on without: a slower start is better than none.
func (d Disks) Mount(ctx context.Context) error {
	from, err := d.find(ctx)
	switch {
	case err != nil:
		return d.say("its own disks can't be used, all stays on the root disk: %v", err)
	case from == "":
		return d.say("it has no disks of its own: images and models lie on the root disk")
	}
	lie := "images and models lie"
	for _, m := range moved {
		source, target := filepath.Join(from, m.name), m.at
		if _, err := d.Run(ctx, "mountpoint", "-q", d.path(target)); err == nil {
			continue
		}
		if d.hasImages(target) {
			// An own image of machines has the engine's, which an empty folder would hide.
			lie = "models lie"
			if err := d.say("%s stays on the root disk: it has images", target); err != nil {
				return err
			}
			continue
		}
		if err := d.bind(ctx, source, target); err != nil {
			return d.say("%s stays on the root disk: %v", target, err)
		}
	}
	return d.say("%s on its own disk, at %s", lie, from)
}

// find returns where a disk of the machine is mounted, which may be done here, or "".
func (d Disks) find(ctx context.Context) (string, error) {
	for _, at := range []string{imageMount, ownMount} {
		if _, err := d.Run(ctx, "mountpoint", "-q", d.path(at)); err == nil {
			return at, nil
		}
	}
	disks := d.disks()
	if len(disks) == 0 {
		return "", nil
	}
	device, err := d.device(ctx, disks)
	if err != nil {
		return "", err
	}
	label, err := d.Run(ctx, "blkid", "-s", "LABEL", "-o", "value", device)
	if err != nil || strings.TrimSpace(label) != diskLabel { // new, or of another life
		_, err := d.Run(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", "-L", diskLabel, device)
		if err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(d.path(ownMount), 0o755); err != nil {
		return "", err
	}
	if _, err := d.Run(ctx, "mount", "-o", "noatime", device, d.path(ownMount)); err != nil {
		return "", err
	}
	return ownMount, nil
}

// device returns the machine's only disk, or all its disks as one (RAID 0): one of Google's has
// 375 GB, which is too little for a large model and its engine, and their speeds add up. What
// they have can be fetched again. Amazon's images join disks by themselves. Where they can't be
// joined, the first one is used; a half-assembled array, which would hold it, is stopped before.
func (d Disks) device(ctx context.Context, disks []string) (string, error) {
	if len(disks) == 1 {
		return disks[0], nil
	}
	joined := d.path(stripes)
	if _, err := os.Stat(joined); err == nil { // of an earlier boot, which the system has found
		return joined, nil
	}
	if _, err := d.Run(ctx, "mdadm", append([]string{"--assemble", joined}, disks...)...); err == nil {
		return joined, nil
	}
	_, err := d.Run(ctx, "mdadm", append([]string{"--create", joined, "--run", "--homehost=any", "--level=0",
		fmt.Sprintf("--raid-devices=%d", len(disks))}, disks...)...)
	if err != nil {
		_, _ = d.Run(ctx, "mdadm", "--stop", "--scan") // none may exist
		return disks[0], d.say("only the first of its %d disks is used: %v", len(disks), err)
	}
	return joined, nil
}

// disks returns the devices of the machine's own disks, each once, in the order of their
// names. Several names may lead to one device.
func (d Disks) disks() (devices []string) {
	for _, pattern := range ownDisks {
		names, _ := filepath.Glob(filepath.Join(d.path("/"), pattern)) // the patterns are well formed
		for _, name := range names {
			if strings.Contains(filepath.Base(name), "-part") {
				continue
			}
			device, err := filepath.EvalSymlinks(name)
			if err == nil && !slices.Contains(devices, device) {
				devices = append(devices, device)
			}
		}
	}
	return devices
}

// hasImages reports whether Docker or containerd has images in its folder.
func (d Disks) hasImages(folder string) bool {
	return slices.ContainsFunc(images, func(pattern string) bool {
		found, _ := filepath.Glob(filepath.Join(d.path(folder), pattern)) // the patterns are well formed
		return len(found) > 0
	})
}

// bind makes a folder of the disk appear at the target.
func (d Disks) bind(ctx context.Context, source, target string) error {
	for _, folder := range []string{source, target} {
		if err := os.MkdirAll(d.path(folder), 0o710); err != nil {
			return err
		}
	}
	_, err := d.Run(ctx, "mount", "--bind", d.path(source), d.path(target))
	return err
}

func (d Disks) path(name string) string { return filepath.Join("/", d.Root, name) }

func (d Disks) say(format string, args ...any) error {
	_, err := fmt.Fprintf(d.Out, "rollout: "+format+"\n", args...)
	return err
}

// runCommand runs a program. Its error has the end of what it wrote.
func runCommand(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		text := strings.TrimSpace(string(out))
		text = text[max(0, len(text)-200):]
		return string(out), fault.WithKind(fault.Unavailable, err, "%s %s", name, text)
	}
	return string(out), nil
}

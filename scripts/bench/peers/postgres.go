package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgres is a running database server.
type postgres struct {
	cmd *exec.Cmd
	log bytes.Buffer
	url string
}

// errNoPostgres is the error on a machine without Postgres.
var errNoPostgres = errors.New("Postgres is not installed: " +
	"install it with your system's packages (Debian: apt-get install postgresql)")

// startPostgres creates a cluster in a new folder and serves it on a socket there.
// Postgres refuses to run as root, so root starts it as the user postgres.
func startPostgres(ctx context.Context, dir string) (*postgres, error) {
	bin, err := findBin()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	as, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-A", "trust", "-U", "bench", "-E",
		"UTF8", "--locale=C")
	initdb.SysProcAttr, initdb.Dir = as, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	p := &postgres{url: fmt.Sprintf("postgres:///postgres?host=%s&user=bench", dir)}
	p.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c",
		"max_connections=100")
	p.cmd.SysProcAttr, p.cmd.Dir, p.cmd.Stderr = as, dir, &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.ready(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// findBin returns the folder of the server's programs. Debian does not put it into
// PATH.
func findBin() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errNoPostgres
	}
	return filepath.Dir(slices.Max(found)), nil
}

// unprivileged returns the attributes to run as the user postgres, and makes that
// user the owner of the folder. Without root it returns nil.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoPostgres, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	// The user must be able to reach the folder.
	for d := filepath.Dir(dir); d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			return nil, err
		}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}},
		os.Chown(dir, int(uid), int(gid))
}

// ready waits until the server accepts connections.
func (p *postgres) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, p.url)
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("postgres accepts no connections: %w\n%s", err, p.log.Bytes())
		}
	}
}

// stop ends the server with SIGINT, its fast shutdown.
func (p *postgres) stop() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return p.cmd.Wait()
}

package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/join"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/standalone"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/ca"
	"rollout/shared/fault"
	"rollout/shared/installation"
)

func joinTokenCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "join-token", Short: "Make a token with which workers on other machines join", Args: arguments(0),
		Long: "Prints a token for `gpuworker --join`. Any number of machines may use it until it ends. Each gets\n" +
			"a certificate of its own, which renews itself; a token that has ended ends no worker.\n\n" +
			"Whoever has the token can join, read prompts and write answers: hand it on as you would a password.",
	}
	location := locationFlags(c)
	life := c.Flags().Duration("for", join.DefaultTokenLife, "how long the token is valid")
	pool := c.Flags().String("pool", "", "the `pool` that its workers may work for (default: any that answers prompts)")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		members, in, err := e.openMembers(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		if *pool != "" {
			if err := checkPool(in, *pool); err != nil {
				return err
			}
		}
		token, until, err := members.NewToken(c.Context(), *life, *pool)
		if err != nil {
			return err
		}
		if err := e.say("valid until %s; start workers with: gpuworker --join HOST:PORT (of `rollout up --join-listen`), "+
			"with this text in the variable ROLLOUT_JOIN_TOKEN", until.Local().Format(time.DateTime)); err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.Out, token.Reveal())
		return err
	}
	return c
}

// checkPool returns an Invalid error if the installation has no pool of that name.
func checkPool(in *installation.Installation, name string) error {
	var names []string
	for _, p := range in.Deployment.Pools {
		names = append(names, p.Name)
	}
	training, _ := in.Deployment.TrainPool()
	for _, known := range append(names, training.Name) {
		if known == name {
			return nil
		}
	}
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the installation has no pool %q", name),
		Remedy: "use one of: " + strings.Join(append(names, training.Name), ", ")}
}

func joinedCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "joined", Short: "List the workers that have joined from other machines", Args: arguments(0),
		Long: "Lists the certificates of workers that have joined with a token and may work now.",
	}
	location := locationFlags(c)
	asJSON := c.Flags().Bool("json", false, "print a JSON array")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		members, in, err := e.openMembers(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		all, err := members.All(c.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(e.Out, append([]join.Member{}, all...))
		}
		if len(all) == 0 {
			_, err = fmt.Fprintln(e.Out, "no workers have joined")
			return err
		}
		rows, now := [][]string{{"ID", "HOST", "POOL", "JOINED", "VALID"}}, e.Clock.Now()
		for _, m := range all {
			valid, pool := progress.FormatDuration(m.Until.Sub(now)), m.Pool
			if !m.RevokedAt.IsZero() {
				valid = "revoked"
			}
			if pool == "" {
				pool = "any"
			}
			rows = append(rows, []string{m.ID, progress.SanitizeLine(m.Host, nameColumns), pool,
				progress.FormatDuration(now.Sub(m.Enrolled)), valid})
		}
		_, err = fmt.Fprint(e.Out, terminal.Table(rows, e.palette(e.Out), func(_, _ int, cell string) string { return cell }))
		return err
	}
	c.AddCommand(joinedRevokeCommand(e))
	return c
}

func joinedRevokeCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "revoke ID", Short: "Refuse a worker that has joined, from now on", Args: arguments(0, "ID"),
		Long: "Revokes a certificate, by its ID as `rollout joined` lists it. The workers that use it end within\n" +
			"seconds; others take over their work. The token with which it was given ends, too. They can join again\n" +
			"with another one.",
	}
	location := locationFlags(c)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		members, in, err := e.openMembers(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		m, err := members.Revoke(c.Context(), args[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.Out, "revoked: %s (%s)\n", m.ID, progress.SanitizeLine(m.Host, nameColumns))
		return err
	}
	return c
}

// openMembers opens the members of an installation on this machine, and its certificate authority,
// which it makes if there is none.
func (e *Env) openMembers(c *cobra.Command, p installation.Location) (
	*join.Members, *installation.Installation, error) {
	if p.Cloud != "" {
		return nil, nil, usage(c, "workers join installations on one machine alone: a cloud starts its own")
	}
	in, err := e.open(c, p)
	if err != nil {
		return nil, nil, err
	}
	a, err := e.authority(in.Dir)
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return join.NewMembers(in.Ports, a), in, nil
}

// authority opens the certificate authority of the installation in dir, and says so if it makes
// one.
func (e *Env) authority(dir string) (*ca.Authority, error) {
	at := installation.TLSDir(dir)
	a, created, err := ca.Open(at, e.Clock.Now())
	if err == nil && created {
		err = e.say("Generated dev CA at %s", filepath.Join(at, ca.CertificateFile))
	}
	return a, err
}

// joining returns what serves the workers that join at the address; nil for "".
func (e *Env) joining(ctx context.Context, p *prepared, address string, settings []string) (
	*standalone.Joining, error) {
	if address == "" {
		return nil, nil
	}
	config, err := installation.ReadConfig(filepath.Join(p.Dir, installation.DeploymentFile))
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	a, err := e.authority(p.Dir)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "--join-listen")
	}
	return &standalone.Joining{Listener: l, Server: join.New(join.Options{Ports: p.Ports, Secrets: p.secrets,
		Deployment: p.deployment, Config: config, Settings: settings, Authority: a})}, nil
}

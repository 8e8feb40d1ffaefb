package machine

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollout/shared/config"
	"rollout/shared/core/servers"
	"rollout/shared/fault"
)

const (
	// rootVariable names the root of the machine's file system; tests set it to a folder.
	rootVariable = "ROLLOUT_ROOT"
	// configVariable holds the text of a config without a file.
	configVariable = "ROLLOUT_CONFIG"
	// maxInput bounds what a command reads from its standard input.
	maxInput = 4 << 20
)

// flags are the arguments of the commands.
type flags struct {
	config, pool string
	host         string
	port         int
}

// Command returns the command "machine" with its sub-commands. It is hidden: people have
// no use for it.
func Command() *cobra.Command {
	var f flags
	c := &cobra.Command{Use: "machine", Short: "Set up a machine of a fleet", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.PersistentFlags().StringVar(&f.config, "config", "", "the `file` with the config; default: the variable "+
		configVariable)
	c.PersistentFlags().StringVar(&f.pool, "pool", "", "the machine's pool")
	add := func(use, short string, run func(c *cobra.Command, f flags) error) *cobra.Command {
		sub := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error { return run(c, f) }}
		c.AddCommand(sub)
		return sub
	}
	add("units", "Write the units of the servers for the GPUs that nvidia-smi lists on standard input", writeUnits)
	add("disks", "Put images and models on the machine's own disks, if it has some", mountDisks)
	add("cause", "Print the line of a server's log, on standard input, that says why it ended", printCause)
	add("context", "Print the context length in the answer of a server, on standard input", printContext)
	add("hub-secret", "Print the name of the secret with the model hub's token; nothing if the config allows none",
		printHubSecret)
	events := add("events", "Print a log, on standard input, as events of CloudWatch Logs, and the arguments as the last",
		printEvents)
	events.Args = cobra.ArbitraryArgs
	serve := add("command", "Print the server's command inside its image, each word ended by a zero byte", printCommand)
	serve.Flags().StringVar(&f.host, "host", "127.0.0.1", "the `address` that the server listens on")
	serve.Flags().IntVar(&f.port, "port", 8000, "its port")
	return c
}

// ReadPool returns the deployment and the pool that the flags of a sub-command of Command
// name.
func ReadPool(c *cobra.Command) (config.Deployment, config.Pool, error) {
	var f flags
	var err error
	if f.config, err = c.Flags().GetString("config"); err == nil {
		f.pool, err = c.Flags().GetString("pool")
	}
	if err != nil {
		return config.Deployment{}, config.Pool{}, fault.WithKind(fault.Internal, err, "read the flags")
	}
	return f.read()
}

// Root returns the root of the machine's file system.
func Root() string { return os.Getenv(rootVariable) }

// read returns the deployment and the pool that the flags name.
func (f flags) read() (d config.Deployment, p config.Pool, err error) {
	name, src := configVariable, []byte(os.Getenv(configVariable))
	if f.config != "" {
		if name, src, err = readFile(f.config); err != nil {
			return d, p, err
		}
	}
	if d, err = config.ParseDeployment(name, src); err != nil {
		return d, p, err
	}
	if p = d.Pool(f.pool); p.Name == "" {
		return d, p, fault.New(fault.Invalid, "the config has no pool %q", f.pool)
	}
	return d, p, nil
}

func readFile(path string) (name string, src []byte, err error) {
	src, err = os.ReadFile(path)
	return path, src, fault.WithKind(fault.NotFound, err, "read the config")
}

func writeUnits(c *cobra.Command, f flags) error {
	d, p, err := f.read()
	if err != nil {
		return err
	}
	listed, err := readAll(c.InOrStdin())
	if err != nil {
		return err
	}
	gpus, err := parseGPUs(string(listed))
	if err != nil {
		return err
	}
	return Units{Pool: p, Machines: d.MachinesOf(p), Root: Root()}.Write(gpus)
}

func mountDisks(c *cobra.Command, _ flags) error {
	return Disks{Root: Root(), Run: runCommand, Out: c.ErrOrStderr()}.Mount(c.Context())
}

func printCause(c *cobra.Command, _ flags) error {
	log, err := readAll(c.InOrStdin())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), servers.Cause(string(log)))
	return err
}

func printContext(c *cobra.Command, f flags) error {
	d, p, err := f.read()
	if err != nil {
		return err
	}
	answer, err := readAll(c.InOrStdin())
	if err != nil {
		return err
	}
	server, _ := servers.Of(d.MachinesOf(p).Server)
	tokens := server.ReadContext(answer)
	if tokens == 0 {
		return fault.New(fault.NotFound, "the server does not say its context length")
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), tokens)
	return err
}

func printCommand(c *cobra.Command, f flags) error {
	d, p, err := f.read()
	if err != nil {
		return err
	}
	m := d.MachinesOf(p)
	server, _ := servers.Of(m.Server)
	start := startOf(p, m, p.Model)
	start.Host, start.Port = f.host, f.port
	for _, word := range server.Command(start) {
		if _, err := io.WriteString(c.OutOrStdout(), word+"\x00"); err != nil {
			return err
		}
	}
	return nil
}

// hubSecret is the name of the secret with the token of the models' hub.
const hubSecret = "hf-token"

func printHubSecret(c *cobra.Command, f flags) error {
	d, _, err := f.read()
	if err != nil || !slices.Contains(d.Secrets, hubSecret) {
		return err
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), d.Cloud.Secrets.Prefix+hubSecret)
	return err
}

func printEvents(c *cobra.Command, _ flags) error {
	log, err := readAll(c.InOrStdin())
	if err != nil {
		return err
	}
	words := strings.Join(c.Flags().Args(), " ")
	return json.NewEncoder(c.OutOrStdout()).Encode(logEvents(string(log)+"\n"+words, time.Now()))
}

// readAll reads the first 4 MiB of the standard input.
func readAll(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxInput))
	return text, fault.WithKind(fault.Unavailable, err, "read the standard input")
}

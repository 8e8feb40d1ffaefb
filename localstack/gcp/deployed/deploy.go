package deployed

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"rollout/localstack/gcp/fakecompute"
	"rollout/localstack/gcp/fakefirestore"
	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/gcp/fakemetadata"
	"rollout/localstack/gcp/fakepubsub"
	"rollout/localstack/gcp/fakesecrets"
	"rollout/localstack/gcp/gateway"
	"rollout/localstack/gcp/iam"
	"rollout/localstack/gcp/planned"
)

// Number is the number of the project, which the names of Google's accounts have.
const Number = "27"

// Options configure Deploy.
type Options struct {
	Functions string // path of the program with all functions, which the image has
	Log       io.Writer
	// SecretText is the value that each secret gets: the plan makes secrets without one.
	SecretText string
}

// Installation is a deployed installation. It is safe for concurrent use.
type Installation struct {
	Plan      planned.Deployment // without references
	Policy    *iam.Policy
	Storage   *fakegcs.Server
	Firestore *fakefirestore.Server
	PubSub    *fakepubsub.Server
	Secrets   *fakesecrets.Server
	Compute   *fakecompute.Server
	Services  map[string]*Service // by FUNCTION_TARGET
	// StorageAddress is that of Storage for the owner, as STORAGE_EMULATOR_HOST.
	StorageAddress string

	project string
	options Options
	way     *gateway.Gateway
	signer  *fakemetadata.Signer
	lost    atomic.Bool // the notifications of buckets; see LoseNotifications
}

// Deploy starts what the plan has until the test ends.
func Deploy(t testing.TB, plan planned.Deployment, o Options) *Installation {
	t.Helper()
	in := &Installation{options: o, Services: map[string]*Service{}}
	var err error
	if in.signer, err = fakemetadata.NewSigner(); err != nil {
		t.Fatal(err)
	}
	addresses := map[string]net.Listener{}
	for _, s := range plan.Of("google_cloud_run_v2_service") {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() }) // the front's server has closed it
		addresses[s.Values.Text("name")] = listener
	}
	in.project = projectOf(plan)
	in.Plan = plan.Resolve(func(attribute, name string) (string, bool) {
		if listener, ok := addresses[name]; ok && attribute == "google_cloud_run_v2_service.uri" {
			return "http://" + listener.Addr().String(), true
		}
		return in.attribute(attribute, name)
	})
	if in.Policy, err = policyOf(in.Plan, in.project); err != nil {
		t.Fatal(err)
	}
	in.startEmulators(t)
	in.startGateway(t)
	in.startCompute(t)
	in.makeResources(t)
	for _, s := range in.Plan.Of("google_cloud_run_v2_service") {
		in.startService(t, s, addresses[s.Values.Text("name")])
	}
	in.subscribe(t)
	return in
}

// startEmulators starts the emulators, which the owner reaches directly.
func (in *Installation) startEmulators(t testing.TB) {
	t.Helper()
	in.Firestore = fakefirestore.Start(t, fakefirestore.Options{})
	in.PubSub = fakepubsub.Start(t, fakepubsub.Options{Token: in.pushToken, MayForward: in.mayForward})
	storage, address, end, err := fakegcs.Start(fakegcs.Options{Notify: in.notify})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	in.Storage, in.StorageAddress = storage, address
	if in.Secrets, end, err = fakesecrets.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
}

// Program returns a program that runs with an account's credentials, and finds Google's
// hosts on this machine. Its log goes to that of the installation.
func (in *Installation) Program(t testing.TB, account, path string, arguments ...string) *exec.Cmd {
	t.Helper()
	environment, end, err := in.Environment(account)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	cmd := exec.Command(path, arguments...)
	cmd.Env = append(environment, "PATH="+os.Getenv("PATH"), "TMPDIR="+os.TempDir())
	cmd.Stdout, cmd.Stderr = in.options.Log, in.options.Log
	return cmd
}

// Environment returns the variables by which a program has an account's credentials, and
// finds Google's hosts on this machine, until end is called.
func (in *Installation) Environment(account string) (variables []string, end func(), err error) {
	_, host, end, err := fakemetadata.Start(fakemetadata.Instance{ID: "5229353360185505341", Project: in.project,
		Number: Number, Zone: in.zone(), Name: "rollout", Account: account}, in.signer)
	return append(in.way.Environment(), "GCE_METADATA_HOST="+host, "HOME=/nonexistent"), end, err
}

// zone returns a zone of the plan's region.
func (in *Installation) zone() string {
	for _, s := range in.Plan.Of("google_cloud_run_v2_service") {
		return s.Values.Text("location") + "-a"
	}
	return ""
}

// AccountOf returns the email of the account of the plan that has the id.
func (in *Installation) AccountOf(id string) string { return accountEmail(in.project, id) }

func accountEmail(project, id string) string { return id + "@" + project + ".iam.gserviceaccount.com" }

// projectOf returns the project of a plan.
func projectOf(plan planned.Deployment) string {
	for _, g := range plan.Of("google_project_iam_member") {
		return g.Values.Text("project")
	}
	return ""
}

// attribute returns what Google computes of a resource; see planned.Deployment.Resolve.
func (in *Installation) attribute(attribute, name string) (string, bool) {
	project := "projects/" + in.project
	email := accountEmail(in.project, name)
	value, ok := map[string]string{
		"google_service_account.email":                email,
		"google_service_account.member":               "serviceAccount:" + email,
		"google_service_account.name":                 project + "/serviceAccounts/" + email,
		"google_pubsub_topic.id":                      project + "/topics/" + name,
		"google_pubsub_subscription.id":               project + "/subscriptions/" + name,
		"google_secret_manager_secret.id":             project + "/secrets/" + name,
		"google_project_iam_custom_role.name":         project + "/roles/" + name,
		"google_logging_project_sink.writer_identity": logWriter,
	}[attribute]
	return value, ok
}

// Accounts with which Google's services act for an installation.
const (
	logWriter    = "serviceAccount:service-" + Number + "@gcp-sa-logging.iam.gserviceaccount.com"
	pubsubAgent  = "serviceAccount:service-" + Number + "@gcp-sa-pubsub.iam.gserviceaccount.com"
	storageAgent = "serviceAccount:service-" + Number + "@gs-project-accounts.iam.gserviceaccount.com"
)

// memberOf returns the member of a policy that an account is.
func memberOf(account string) string {
	if strings.HasSuffix(account, ".gserviceaccount.com") {
		return "serviceAccount:" + account
	}
	return "user:" + account
}

// eventsOf reports whether a notification, as planned, is about an event of the object.
func eventsOf(values planned.Object, n fakegcs.Notification) bool {
	for _, kind := range values.Texts("event_types") {
		if kind == n.Attributes()["eventType"] {
			return values.Text("bucket") == n.Bucket && strings.HasPrefix(n.Object, values.Text("object_name_prefix"))
		}
	}
	return false
}

func (in *Installation) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(in.options.Log, format+"\n", args...) // for people
}

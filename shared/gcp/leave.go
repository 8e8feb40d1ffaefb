package gcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// LeaveFunction is the function by which machines leave their groups. A machine may not
// change a group itself: it asks, and proves which machine it is by its identity token.
//
//	worker ──token of the metadata server──▶ leave ──deletes that instance──▶ its group
const LeaveFunction = "leave"

// LeaveAudience returns the audience of the tokens for the function leave. The deployment
// gives it to the function's service as a custom audience, because a function does not
// know its own address.
func LeaveAudience(c config.Cloud) string {
	return "https://" + c.FunctionName(LeaveFunction) + "." + c.Project + ".internal"
}

// LeaveAccount returns the service account of the machines that answer prompts.
func LeaveAccount(c config.Cloud) string { return machineAccount(c, "worker") }

// TrainerAccount returns the service account of the machines that train.
func TrainerAccount(c config.Cloud) string { return machineAccount(c, "trainer") }

func machineAccount(c config.Cloud, name string) string {
	return c.Name + "-" + name + "@" + c.Project + ".iam.gserviceaccount.com"
}

// LeaveRequest is the body of a request to leave. The token comes in the body a second
// time because Cloud Run replaces the signature of the one in the header.
type LeaveRequest struct {
	Token string `json:"token"`
}

// Attributes of the metadata of a machine that a group started.
const (
	createdBy      = "instance/attributes/created-by"    // the group: Compute Engine sets it
	leaveAttribute = "instance/attributes/rollout-leave" // the function's address: the deployment sets it
)

// Machines removes machines from the groups of a stack.
type Machines struct {
	deployment config.Deployment
	managers   *managers
}

// Machines returns what removes machines from the stack's groups; it sends no request.
func (s *Stack) Machines() *Machines { return &Machines{s.Deployment, s.managers()} }

// Remove removes the instance with that id and name from its group, which starts no
// other in its place. It is NotFound if no group of the stack has the instance, for
// example because another one has its name by now.
func (m *Machines) Remove(ctx context.Context, id, name string) error {
	group, ok := m.groupOf(name)
	if !ok {
		return fault.New(fault.NotFound, "the instance %s (%s) is in no group of the installation", id, name)
	}
	instances, err := m.managers.instances(ctx, group)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(instances, func(i managedInstance) bool { return i.ID == id })
	if at < 0 {
		return fault.New(fault.NotFound, "the group %s has no instance %s (%s)", group, id, name)
	}
	if instances[at].leaving() {
		return nil
	}
	return m.managers.remove(ctx, group, []string{instances[at].URL})
}

// groupOf returns the group that an instance with that name belongs to. A group appends
// four characters to its own name.
func (m *Machines) groupOf(instance string) (string, bool) {
	at := strings.LastIndexByte(instance, '-')
	if at < 0 {
		return "", false
	}
	_, ok := PoolOfGroup(m.deployment, instance[:at])
	return instance[:at], ok
}

// membership is an instance's place in a managed group.
type membership struct {
	instance *Instance
	audience string
	client   *http.Client
}

var _ capacity.Membership = (*membership)(nil)

// leaveTimeout is the time limit of a request to leave; the function has to start first.
const leaveTimeout = time.Minute

// InFleet reports whether a managed group started the instance; see capacity.Membership.
func (m *membership) InFleet(ctx context.Context) (bool, error) {
	by, err := m.instance.read(ctx, createdBy)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return strings.Contains(by, "/instanceGroupManagers/"), err
}

// Terminate asks the function leave to delete the instance; see capacity.Membership. The
// group starts no other machine in either mode: the functions ask for one while work
// waits.
func (m *membership) Terminate(ctx context.Context, _ capacity.TerminationMode) error {
	address, err := m.instance.read(ctx, leaveAttribute)
	if err != nil {
		return fault.Wrap(err, "find the function by which machines leave")
	}
	query := url.Values{"audience": {m.audience}, "format": {"full"}}
	token, err := m.instance.read(ctx, "instance/service-accounts/default/identity?"+query.Encode())
	if err != nil {
		return fault.Wrap(err, "get the machine's identity token")
	}
	return m.ask(ctx, address, token)
}

// ask sends the request to leave.
func (m *membership) ask(ctx context.Context, address, token string) error {
	limited, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	body, err := json.Marshal(LeaveRequest{token})
	if err != nil {
		return fault.WithKind(fault.Internal, err, "encode the request to leave")
	}
	r, err := http.NewRequestWithContext(limited, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "ask %q to leave", address)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := m.client.Do(r)
	if err != nil {
		kind := fault.Unavailable
		if ctx.Err() != nil {
			kind = fault.Canceled
		}
		return fault.WithKind(kind, err, "ask to leave")
	}
	defer answer.Body.Close() // opened for reading; closing cannot lose data
	if answer.StatusCode < 300 {
		return nil
	}
	said, _ := io.ReadAll(io.LimitReader(answer.Body, 256)) // the status says enough
	return fault.New(kindOfStatus(answer.StatusCode), "ask to leave: %s is answered with %s: %.256s", address,
		answer.Status, strings.TrimSpace(string(said)))
}

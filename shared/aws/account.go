package aws

import (
	"context"
	"net/http"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// account looks at the account of an installation for the doctor. Each check asks services
// that the installation itself does not need. Where the caller may not ask, or such a
// service can't be reached, the check is *cloud.Unseen.
type account struct {
	sdk   awssdk.Config
	api   signed
	at    config.Deployment
	clock clock.Clock // this machine's
}

// newAccount returns the account of a stack.
func newAccount(s *Stack) account {
	return account{sdk: s.AWS, api: signed{s.AWS, s.Ports.Clock}, at: s.Deployment, clock: s.machine}
}

// probeLimit bounds each check.
const probeLimit = 20 * time.Second

// probes returns the checks in the order in which a new account fails.
func (a account) probes() []cloud.Probe {
	return []cloud.Probe{
		{Name: "credentials", Limit: probeLimit, Run: a.credentials},
		{Name: "clock", Limit: probeLimit, Run: a.compareClocks},
		{Name: "gpu_quota", Limit: probeLimit, Run: a.quotas},
		{Name: "machine_types", Limit: probeLimit, Run: a.machineTypes},
		{Name: "machine_image", Limit: probeLimit, Run: a.machineImages},
		{Name: "launches", Limit: probeLimit, Run: a.launches},
		{Name: "notification", Limit: probeLimit, Run: a.notification},
	}
}

// seen turns an error of a look at the account into Unseen if nothing is wrong with the
// installation for that: a right is missing, the credentials themselves are, which the
// check credentials says, or the service does not answer.
func seen(err error, action string) error {
	service, _, _ := strings.Cut(action, ":")
	switch {
	case err == nil:
		return nil
	case lacksRight(err):
		return &cloud.Unseen{Reason: "can't be seen with these rights: " + action}
	case explainsItself(err):
		return &cloud.Unseen{Reason: "can't be seen without valid credentials"}
	case statusOf(err) == 0 && codeOf(err) == "" && !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Internal):
		return &cloud.Unseen{Reason: "the service " + service + " can't be reached from here"}
	}
	return err
}

// lacksRight reports whether a service refused what no policy allows the caller.
func lacksRight(err error) bool {
	code := codeOf(err)
	return strings.HasPrefix(code, "AccessDenied") || code == "UnauthorizedOperation"
}

// pools returns the pools with groups of machines.
func (a account) pools() (pools []config.Pool) {
	for _, p := range a.at.Pools {
		if p.Machines != config.MachinesCloudRun {
			pools = append(pools, p)
		}
	}
	return pools
}

// caller asks who the credentials are of. It needs no right.
func (a account) caller(ctx context.Context) (*sts.GetCallerIdentityOutput, error) {
	who, err := sts.NewFromConfig(a.sdk).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	return who, translate(ctx, err, "ask who the credentials are of")
}

// credentials finds credentials, and asks whose they are.
func (a account) credentials(ctx context.Context) (string, error) {
	found, err := a.sdk.Credentials.Retrieve(ctx)
	if err != nil {
		return "", fault.WithKind(fault.KindOf(err), err, "find credentials")
	}
	who, err := a.caller(ctx)
	if explainsItself(err) {
		return "", err
	}
	if err := seen(err, "sts:GetCallerIdentity"); err != nil {
		return "", err
	}
	return awssdk.ToString(who.Arn) + ", by " + found.Source, nil
}

// compareClocks compares this machine's clock with that of the services, in the header of
// any answer.
func (a account) compareClocks(ctx context.Context) (string, error) {
	at, err := endpoint(ctx, a.sdk)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, at, nil)
	if err != nil {
		return "", fault.WithKind(fault.Invalid, err, "the endpoint %s", at)
	}
	asked := a.clock.Now()
	answer, err := a.sdk.HTTPClient.Do(r)
	if err != nil {
		return "", &cloud.Unseen{Reason: "the service s3 can't be reached from here"}
	}
	got := a.clock.Now()
	_ = answer.Body.Close() // the body is not used
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return "", &cloud.Unseen{Reason: "the answer of " + r.URL.Redacted() + " has no time"}
	}
	return cloud.CompareClocks(asked, got, date, a.at.Health.SkewBudget.Std(), "AWS")
}

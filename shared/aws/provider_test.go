package aws

import (
	"strings"
	"testing"
	"time"

	"rollout/shared/config"
)

func TestProfileHintsNameTheDeploymentsResources(t *testing.T) {
	t.Parallel()
	p := Provider{}.Profile(config.Deployment{Cloud: config.Cloud{Provider: config.ProviderAWS, Name: "acme"}})
	for text, want := range map[string]string{
		p.Hints.Start:                       "`aws logs tail /aws/lambda/acme-plan`",
		p.Hints.Workers("small"):            "--auto-scaling-group-name acme-small`",
		p.Hints.ConsoleOutput("i-01234567"): "--instance-id i-01234567",
		p.Hints.PendingUpload:               "`aws logs tail /aws/lambda/acme-submit`",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("hint %q lacks %q", text, want)
		}
	}
	if p.Hints.PickupTime != 30*time.Second || p.Hints.Replacement == "" {
		t.Errorf("hints are %+v", p.Hints)
	}
	if c := p.Capabilities; !c.BilledQueues || !c.LongPoll || !c.ManagedFleet || !c.DeclaredQueues || !c.RemoteBucket {
		t.Errorf("capabilities are %+v", c)
	}
}

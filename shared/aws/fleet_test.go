package aws

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"rollout/shared/capacity"
	"rollout/shared/fault"
)

// scaling is Auto Scaling with one group, as its API reference has it.
type scaling struct {
	mu        sync.Mutex
	name      string
	desired   int
	maximum   int
	deleted   bool
	instances []string
	refuse    string // answered to every request: its code
	asked     []string
}

func (s *scaling) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	action, id := r.FormValue("Action"), r.FormValue("InstanceId")
	s.asked = append(s.asked, action)
	refuse := func(code, message string) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>`, code, message)
	}
	if s.refuse != "" {
		refuse(s.refuse, "so it says")
		return
	}
	switch action {
	case "DescribeAutoScalingGroups":
		group := ""
		if r.FormValue("AutoScalingGroupNames.member.1") == s.name {
			status := ""
			if s.deleted {
				status = "<Status>Delete in progress</Status>"
			}
			group = fmt.Sprintf(`<member><AutoScalingGroupName>%s</AutoScalingGroupName><MinSize>0</MinSize><MaxSize>%d</MaxSize><DesiredCapacity>%d</DesiredCapacity>%s</member>`,
				s.name, s.maximum, s.desired, status)
		}
		_, _ = fmt.Fprintf(w, `<DescribeAutoScalingGroupsResponse><DescribeAutoScalingGroupsResult><AutoScalingGroups>%s</AutoScalingGroups></DescribeAutoScalingGroupsResult></DescribeAutoScalingGroupsResponse>`, group)
	case "DescribeAutoScalingInstances":
		of := r.FormValue("InstanceIds.member.1")
		member := ""
		if slices.Contains(s.instances, of) {
			member = fmt.Sprintf(`<member><InstanceId>%s</InstanceId><AutoScalingGroupName>%s</AutoScalingGroupName><LifecycleState>InService</LifecycleState></member>`, of, s.name)
		}
		_, _ = fmt.Fprintf(w, `<DescribeAutoScalingInstancesResponse><DescribeAutoScalingInstancesResult><AutoScalingInstances>%s</AutoScalingInstances></DescribeAutoScalingInstancesResult></DescribeAutoScalingInstancesResponse>`, member)
	case "SetDesiredCapacity":
		n, err := strconv.Atoi(r.FormValue("DesiredCapacity"))
		if err != nil || n > s.maximum || r.FormValue("HonorCooldown") != "false" {
			refuse("ValidationError", "New SetDesiredCapacity value is wrong")
			return
		}
		s.desired = n
		_, _ = fmt.Fprint(w, `<SetDesiredCapacityResponse/>`)
	case "TerminateInstanceInAutoScalingGroup":
		shrink := r.FormValue("ShouldDecrementDesiredCapacity") == "true"
		switch {
		case !slices.Contains(s.instances, id):
			refuse("ValidationError", "Instance Id not found - No managed instance found for instance ID: "+id)
			return
		case shrink && s.desired == 0:
			refuse("ValidationError", "Currently, desiredSize equals minSize (0). Terminating instance without replacement will violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.")
			return
		case shrink:
			s.desired--
		}
		s.instances = slices.DeleteFunc(s.instances, func(other string) bool { return other == id })
		_, _ = fmt.Fprint(w, `<TerminateInstanceInAutoScalingGroupResponse><TerminateInstanceInAutoScalingGroupResult><Activity/></TerminateInstanceInAutoScalingGroupResult></TerminateInstanceInAutoScalingGroupResponse>`)
	}
}

// fleet returns the fleet over s of an instance with that id; "" is none.
func (s *scaling) fleet(t *testing.T, id string) *Fleet {
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	o := FleetOptions{SDK: []func(*autoscaling.Options){func(a *autoscaling.Options) { a.BaseEndpoint, a.Retryer = &server.URL, awssdk.NopRetryer{} }}}
	if id != "" {
		m := newMetadata()
		m.set("instance-id", id)
		o.Instance, _ = newInstance(t, m, InstanceOptions{})
	}
	cfg := awssdk.Config{Region: "us-east-1", Credentials: awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
		return awssdk.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
	})}
	return NewFleet(cfg, func(pool string) string { return "rollout-" + pool }, o)
}

func TestAFleetIsRaisedAndNeverLowered(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", maximum: 8}
	f := s.fleet(t, "")
	for _, c := range []struct{ machines, want, requests int }{{0, 0, 1}, {3, 3, 2}, {2, 3, 1}, {3, 3, 1}, {100, 8, 2}, {1 << 40, 8, 1}} {
		s.asked = nil
		if err := f.ScaleUp(t.Context(), "p", c.machines); err != nil || s.desired != c.want || len(s.asked) != c.requests {
			t.Errorf("raised to %d: %d are desired, %v, asked %v; want %d with %d requests", c.machines, s.desired, err, s.asked, c.want, c.requests)
		}
	}
}

func TestAPoolWithoutMachinesHasNoFleet(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", maximum: 8}
	if err := s.fleet(t, "").ScaleUp(t.Context(), "other", 1); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "gpu=true") {
		t.Errorf("Raise = %v, want NotFound with what to do", err)
	}
	s.deleted = true
	if err := s.fleet(t, "").ScaleUp(t.Context(), "p", 1); !fault.Is(err, fault.NotFound) {
		t.Errorf("of a group that is being deleted: %v, want NotFound", err)
	}
}

func TestAMachineLeavesItsFleet(t *testing.T) {
	t.Parallel()
	const id = "i-0123456789abcdef0"
	for name, c := range map[string]struct {
		after           capacity.TerminationMode
		desired, remain int
	}{
		"that shrinks by it":              {capacity.Shrink, 2, 1},
		"to be replaced":                  {capacity.Replace, 2, 2},
		"that is smaller than it thought": {capacity.Shrink, 0, 0},
	} {
		s := &scaling{name: "rollout-p", maximum: 8, desired: c.desired, instances: []string{id, "i-00000000"}}
		f := s.fleet(t, id)
		if err := f.Terminate(t.Context(), c.after); err != nil || s.desired != c.remain || !slices.Equal(s.instances, []string{"i-00000000"}) {
			t.Errorf("%s: %d are desired, of %v, %v; want %d", name, s.desired, s.instances, err, c.remain)
		}
		if err := f.Terminate(t.Context(), c.after); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: a second time: %v, want NotFound", name, err)
		}
	}
}

func TestTheGroupOfAnInstanceIsKnown(t *testing.T) {
	t.Parallel()
	f := (&scaling{name: "rollout-p", instances: []string{"i-00000000"}}).fleet(t, "")
	if got, err := f.AutoScalingGroupOf(t.Context(), "i-00000000"); err != nil || got != "rollout-p" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := f.AutoScalingGroupOf(t.Context(), "i-11111111"); !fault.Is(err, fault.NotFound) {
		t.Errorf("of somebody else's: %q, %v, want NotFound", got, err)
	}
	f = (&scaling{refuse: "AccessDenied"}).fleet(t, "")
	if _, err := f.AutoScalingGroupOf(t.Context(), "i-00000000"); !fault.Is(err, fault.Denied) {
		t.Errorf("for who may not ask: %v, want Denied", err)
	}
}

func TestWhoHasNoSeatCanNotLeave(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", desired: 1}
	if err := s.fleet(t, "").Terminate(t.Context(), capacity.Shrink); !fault.Is(err, fault.NotFound) || len(s.asked) > 0 {
		t.Errorf("Leave = %v after %v, want NotFound", err, s.asked)
	}
}

func TestOnlyAnInstanceOfAGroupHasASeat(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]bool{"": false, "InService": true, "Terminated": true, "Detached": false} {
		m := newMetadata()
		if state != "" {
			m.set("autoscaling/target-lifecycle-state", state)
		}
		instance, _ := newInstance(t, m, InstanceOptions{})
		if got, err := NewFleet(awssdk.Config{}, nil, FleetOptions{Instance: instance}).InFleet(t.Context()); err != nil || got != want {
			t.Errorf("state %q: %v, %v, want %v", state, got, err, want)
		}
	}
	if got, err := NewFleet(awssdk.Config{}, nil, FleetOptions{}).InFleet(t.Context()); err != nil || got {
		t.Errorf("of no instance: %v, %v", got, err)
	}
}

func TestTroubleWithAFleetHasItsKind(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]fault.Kind{"ScalingActivityInProgress": fault.Unavailable, "ResourceContention": fault.Throttled, "AccessDenied": fault.Denied} {
		f := (&scaling{name: "rollout-p", refuse: code}).fleet(t, "i-0123456789abcdef0")
		if err := f.ScaleUp(t.Context(), "p", 1); !fault.Is(err, want) {
			t.Errorf("%s: Raise = %v, want %v", code, err, want)
		}
		if err := f.Terminate(t.Context(), capacity.Replace); !fault.Is(err, want) {
			t.Errorf("%s: Leave = %v, want %v", code, err, want)
		}
	}
}

package aws

import (
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

// scaling is a fake Auto Scaling service with one group, according to its API
// reference.
type scaling struct {
	mu        sync.Mutex
	name      string
	desired   int
	maximum   int
	deleted   bool
	instances []string
	suspended string // why the process Launch is suspended; "" if it is not
	refuse    string // the error code of every response, if set
	denied    string // the action that is not allowed, if set
	calls     []string
}

func (s *scaling) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	action, id := r.FormValue("Action"), r.FormValue("InstanceId")
	s.calls = append(s.calls, action)
	refuse := func(code, message string) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(
			w,
			`<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>`,
			code,
			message,
		)
	}
	if s.refuse != "" {
		refuse(s.refuse, "so it says")
		return
	}
	if action == s.denied {
		refuse("AccessDenied", "no")
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
			group = fmt.Sprintf(`<member><AutoScalingGroupName>%s</AutoScalingGroupName><MinSize>0</MinSize>`+
				`<MaxSize>%d</MaxSize><DesiredCapacity>%d</DesiredCapacity>%s`, s.name, s.maximum, s.desired, status)
			group += `<Instances>`
			for _, i := range s.instances {
				id, state, leaving := strings.Cut(i, " ")
				if !leaving {
					state = "InService"
				}
				group += `<member><InstanceId>` + id + `</InstanceId><LifecycleState>` + state + `</LifecycleState></member>`
			}
			group += `</Instances>`
			if s.suspended != "" {
				group += `<SuspendedProcesses><member><ProcessName>Launch</ProcessName><SuspensionReason>` + s.suspended +
					`</SuspensionReason></member></SuspendedProcesses>`
			}
			group += `</member>`
		}
		_, _ = fmt.Fprintf(w, `<DescribeAutoScalingGroupsResponse><DescribeAutoScalingGroupsResult>`+
			`<AutoScalingGroups>%s</AutoScalingGroups>`+
			`</DescribeAutoScalingGroupsResult></DescribeAutoScalingGroupsResponse>`, group)
	case "DescribeAutoScalingInstances":
		of := r.FormValue("InstanceIds.member.1")
		member := ""
		if slices.Contains(s.instances, of) {
			member = fmt.Sprintf(`<member><InstanceId>%s</InstanceId><AutoScalingGroupName>%s</AutoScalingGroupName>`+
				`<LifecycleState>InService</LifecycleState></member>`, of, s.name)
		}
		_, _ = fmt.Fprintf(w, `<DescribeAutoScalingInstancesResponse><DescribeAutoScalingInstancesResult>`+
			`<AutoScalingInstances>%s</AutoScalingInstances>`+
			`</DescribeAutoScalingInstancesResult></DescribeAutoScalingInstancesResponse>`, member)
	case "SetDesiredCapacity":
		n, err := strconv.Atoi(r.FormValue("DesiredCapacity"))
		if err != nil || n > s.maximum || r.FormValue("HonorCooldown") != "false" {
			refuse("ValidationError", "New SetDesiredCapacity value is wrong")
			return
		}
		s.desired = n
		_, _ = fmt.Fprint(w, `<SetDesiredCapacityResponse/>`)
	case "ResumeProcesses":
		if r.FormValue("ScalingProcesses.member.1") != "Launch" || r.FormValue("ScalingProcesses.member.2") != "" {
			refuse("ValidationError", "more than Launch")
			return
		}
		s.suspended = ""
		_, _ = fmt.Fprint(w, `<ResumeProcessesResponse/>`)
	case "TerminateInstanceInAutoScalingGroup":
		shrink := r.FormValue("ShouldDecrementDesiredCapacity") == "true"
		switch {
		case !slices.Contains(s.instances, id):
			refuse("ValidationError", "Instance Id not found - No managed instance found for instance ID: "+id)
			return
		case shrink && s.desired == 0:
			refuse("ValidationError", "Currently, desiredSize equals minSize (0). Terminating instance without "+
				"replacement will violate group's min size constraint. Either set shouldDecrementDesiredCapacity "+
				"flag to false or lower group's min size.")
			return
		case shrink:
			s.desired--
		}
		s.instances = slices.DeleteFunc(s.instances, func(other string) bool { return other == id })
		_, _ = fmt.Fprint(w, `<TerminateInstanceInAutoScalingGroupResponse>`+
			`<TerminateInstanceInAutoScalingGroupResult><Activity/></TerminateInstanceInAutoScalingGroupResult>`+
			`</TerminateInstanceInAutoScalingGroupResponse>`)
	}
}

// fleet returns a Fleet whose requests s answers, on the instance with the id; ""
// means outside EC2.
func (s *scaling) fleet(t *testing.T, id string) *Fleet {
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	o := FleetOptions{
		SDK: []func(*autoscaling.Options){func(a *autoscaling.Options) { a.BaseEndpoint = &server.URL }},
	}
	if id != "" {
		m := newMetadata()
		m.set("instance-id", id)
		o.Instance, _ = newInstance(t, m, InstanceOptions{})
	}
	return NewFleet(testConfig(server.Client()), func(pool string) string { return "rollout-" + pool }, o)
}

func TestScaleUpNeverLowersAndRespectsMaximum(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", maximum: 8}
	f := s.fleet(t, "")
	for _, c := range []struct{ machines, want, requests int }{
		{0, 0, 1}, {3, 3, 2}, {2, 3, 1}, {3, 3, 1}, {100, 8, 2}, {1 << 40, 8, 1},
	} {
		s.calls = nil
		err := f.ScaleUp(t.Context(), "p", c.machines)
		if err != nil || s.desired != c.want || len(s.calls) != c.requests {
			t.Errorf("ScaleUp to %d = %v: desired %d after %v, want %d after %d requests",
				c.machines, err, s.desired, s.calls, c.want, c.requests)
		}
	}
}

func TestScaleUpOfMissingGroupIsNotFound(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", maximum: 8}
	err := s.fleet(t, "").ScaleUp(t.Context(), "other", 1)
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "gpu=true") {
		t.Errorf("ScaleUp = %v, want NotFound with a remedy", err)
	}
	s.deleted = true
	if err := s.fleet(t, "").ScaleUp(t.Context(), "p", 1); !fault.Is(err, fault.NotFound) {
		t.Errorf("ScaleUp of a group that is being deleted = %v, want NotFound", err)
	}
}

func TestTerminateRemovesInstanceFromGroup(t *testing.T) {
	t.Parallel()
	const id = "i-0123456789abcdef0"
	for name, c := range map[string]struct {
		mode            capacity.TerminationMode
		desired, remain int
	}{
		"shrink":                        {capacity.Shrink, 2, 1},
		"replace":                       {capacity.Replace, 2, 2},
		"shrink below the desired size": {capacity.Shrink, 0, 0},
	} {
		s := &scaling{name: "rollout-p", maximum: 8, desired: c.desired, instances: []string{id, "i-00000000"}}
		f := s.fleet(t, id)
		err := f.Terminate(t.Context(), c.mode)
		if err != nil || s.desired != c.remain || !slices.Equal(s.instances, []string{"i-00000000"}) {
			t.Errorf("%s: Terminate = %v: desired %d of %v, want %d", name, err, s.desired, s.instances, c.remain)
		}
		if err := f.Terminate(t.Context(), c.mode); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: second Terminate = %v, want NotFound", name, err)
		}
	}
}

func TestAutoScalingGroupOfInstance(t *testing.T) {
	t.Parallel()
	f := (&scaling{name: "rollout-p", instances: []string{"i-00000000"}}).fleet(t, "")
	if got, err := f.AutoScalingGroupOf(t.Context(), "i-00000000"); err != nil || got != "rollout-p" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := f.AutoScalingGroupOf(t.Context(), "i-11111111"); !fault.Is(err, fault.NotFound) {
		t.Errorf("of an instance without a group: %q, %v, want NotFound", got, err)
	}
	f = (&scaling{refuse: "AccessDenied"}).fleet(t, "")
	if _, err := f.AutoScalingGroupOf(t.Context(), "i-00000000"); !fault.Is(err, fault.Denied) {
		t.Errorf("without permission: %v, want Denied", err)
	}
}

func TestTerminateOutsideFleetIsNotFound(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", desired: 1}
	if err := s.fleet(t, "").Terminate(t.Context(), capacity.Shrink); !fault.Is(err, fault.NotFound) ||
		len(s.calls) > 0 {
		t.Errorf("Terminate = %v after %v, want NotFound without requests", err, s.calls)
	}
}

func TestInFleetOnlyWhileInstanceBelongsToGroup(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]bool{"": false, "InService": true, "Terminated": true, "Detached": false} {
		m := newMetadata()
		if state != "" {
			m.set("autoscaling/target-lifecycle-state", state)
		}
		instance, _ := newInstance(t, m, InstanceOptions{})
		f := NewFleet(awssdk.Config{}, nil, FleetOptions{Instance: instance})
		if got, err := f.InFleet(t.Context()); err != nil || got != want {
			t.Errorf("state %q: InFleet = %v, %v, want %v", state, got, err, want)
		}
	}
	if got, err := NewFleet(awssdk.Config{}, nil, FleetOptions{}).InFleet(t.Context()); err != nil || got {
		t.Errorf("outside EC2: InFleet = %v, %v, want false", got, err)
	}
}

func TestFleetErrorsHaveKinds(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]fault.Kind{
		"ScalingActivityInProgress": fault.Unavailable,
		"ResourceContention":        fault.Throttled,
		"AccessDenied":              fault.Denied,
	} {
		f := (&scaling{name: "rollout-p", refuse: code}).fleet(t, "i-0123456789abcdef0")
		if err := f.ScaleUp(t.Context(), "p", 1); !fault.Is(err, want) {
			t.Errorf("%s: ScaleUp = %v, want %v", code, err, want)
		}
		if err := f.Terminate(t.Context(), capacity.Replace); !fault.Is(err, want) {
			t.Errorf("%s: Terminate = %v, want %v", code, err, want)
		}
	}
}

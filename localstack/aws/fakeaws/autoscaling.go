package fakeaws

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"rollout/localstack/subprocess"
)

// Groups are the account's groups of instances.
type Groups struct {
	cloud  *Cloud
	mu     sync.Mutex
	groups map[string]*group
	ids    int
	closed bool
}

type group struct {
	name          string
	most, desired int
	peak          int // the highest desired size
	launch        func(*Instance) *exec.Cmd
	instances     []*Instance
}

// Instance is a machine of a group: a process, and its metadata service.
type Instance struct {
	ID, Group string
	// Metadata is the address of the instance's metadata service.
	Metadata string

	groups  *Groups
	service *metadata
	cmd     *exec.Cmd
	log     *tail
	gone    chan struct{} // closed once it is terminated
	ended   chan struct{} // closed once its process has ended for good
	once    sync.Once
}

// wentDown is why a group ends an instance that it finds switched off.
const wentDown = "an EC2 health check indicating it has been terminated or stopped."

// shutdownGrace is how long a process has between SIGTERM and the end of its machine.
const shutdownGrace = 5 * time.Second

func newGroups(c *Cloud) *Groups { return &Groups{cloud: c, groups: map[string]*group{}} }

// Make makes a group of at most so many instances, each of which runs the
// command that launch returns. A process that fails is started again, as the
// machine's init does; a machine whose program is not there leaves its group, as
// its script does, and can say nothing.
func (g *Groups) Make(name string, most int, launch func(*Instance) *exec.Cmd) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[name] = &group{name: name, most: most, launch: launch}
}

// Size is the group's desired size, the highest that it had, and how many
// instances live.
func (g *Groups) Size(name string) (desired, peak, alive int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := g.groups[name]; at != nil {
		return at.desired, at.peak, len(at.instances)
	}
	return 0, 0, 0
}

// SetDesired sets the desired size, as SetDesiredCapacity does.
func (g *Groups) SetDesired(name string, desired int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.groups[name]
	if at == nil {
		return fmt.Errorf("no group is named %s", name)
	}
	if desired < 0 || desired > at.most {
		return fmt.Errorf("the desired size %d is not between 0 and the group's most, %d", desired, at.most)
	}
	at.desired, at.peak = desired, max(at.peak, desired)
	for len(at.instances) > desired { // the youngest go
		last := at.instances[len(at.instances)-1]
		at.instances = at.instances[:len(at.instances)-1]
		last.shutDown(g.cloud, fmt.Sprintf("a difference between desired and actual capacity, shrinking the capacity from %d to %d.", len(at.instances)+1, len(at.instances)))
	}
	g.fill(at)
	return nil
}

// Instances are those of a group that live.
func (g *Groups) Instances(name string) []*Instance {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := g.groups[name]; at != nil {
		return slices.Clone(at.instances)
	}
	return nil
}

// fill starts what is missing of a group. The lock is held.
func (g *Groups) fill(at *group) {
	for len(at.instances) < at.desired && !g.closed {
		g.ids++
		in := &Instance{ID: fmt.Sprintf("i-%017x", g.ids), Group: at.name, groups: g, log: &tail{}, gone: make(chan struct{}), ended: make(chan struct{})}
		in.service = newMetadata(in.ID)
		in.Metadata = in.service.server.URL
		at.instances = append(at.instances, in)
		g.cloud.running.Go(func() { in.run(at.launch, g.cloud) })
	}
}

// run runs the instance's command until the instance is gone, again and again
// as long as it fails.
func (in *Instance) run(launch func(*Instance) *exec.Cmd, c *Cloud) {
	defer close(in.ended)
	for {
		cmd := launch(in)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Stdout, cmd.Stderr = in.log, in.log
		if err := subprocess.Start(cmd); err != nil {
			c.options.Log.Info("an instance has no program", "instance", in.ID, "error", err)
			_ = in.groups.terminate(in.ID, true) // it may be gone already
			return
		}
		in.service.mu.Lock()
		in.cmd = cmd
		in.service.mu.Unlock()
		over := make(chan error, 1)
		go func() { over <- cmd.Wait() }()
		select {
		case err := <-over:
			if err == nil {
				return // it has nothing more to do; the machine stays
			}
		case <-in.gone:
			_ = syscall.Kill(-cmd.Process.Pid, sigKill)
			<-over
			return
		}
		select {
		case <-in.gone:
			return
		default:
		}
		if !c.wait(100 * time.Millisecond) {
			return
		}
	}
}

// Environment is that of a process on the instance: its session has
// the name of the group, whose role it has.
func (in *Instance) Environment() []string {
	return append(in.groups.cloud.Environment("worker"), "AWS_SESSION_TOKEN="+in.Group, "AWS_EC2_METADATA_DISABLED=false", "AWS_EC2_METADATA_SERVICE_ENDPOINT="+in.Metadata)
}

// KillProcess kills the instance's process without notice; the machine stays, and its
// init starts the process again.
func (in *Instance) KillProcess() { in.signal(sigKill) }

// FreezeProcess stops the instance's process as it is; Continue lets it go on.
func (in *Instance) FreezeProcess() { in.signal(syscall.SIGSTOP) }

// ResumeProcess lets a stopped process go on.
func (in *Instance) ResumeProcess() { in.signal(syscall.SIGCONT) }

// SignalTerminate tells the instance's process to end, as the machine's init does when
// it goes down.
func (in *Instance) SignalTerminate() { in.signal(syscall.SIGTERM) }

// Ended is closed once the instance's process has ended for good.
func (in *Instance) Ended() <-chan struct{} { return in.ended }

// Output is what the instance's process wrote last.
func (in *Instance) Output() string { return in.log.String() }

func (in *Instance) signal(s syscall.Signal) {
	in.service.mu.Lock()
	defer in.service.mu.Unlock()
	if in.cmd != nil && in.cmd.Process != nil {
		_ = syscall.Kill(-in.cmd.Process.Pid, s) // it may have ended
	}
}

// destroy ends the machine at once.
func (in *Instance) destroy() {
	in.once.Do(func() {
		close(in.gone)
		in.service.server.Close()
	})
}

// Interrupt announces that EC2 takes the instance back after the lead, by the
// metadata service and by EventBridge, and does so. Then, or when the instance
// leaves before, the group starts another in its place.
func (g *Groups) Interrupt(in *Instance, lead time.Duration) {
	in.service.announce(time.Now().Add(lead))
	g.EmitInterruptionWarning(in)
	g.cloud.running.Go(func() {
		if g.cloud.wait(lead) {
			in.destroy()
			if g.drop(in, false) {
				g.tell(in, wentDown)
			}
		}
	})
}

// PowerOff switches the instance off, as its own script may. The group starts
// another in its place.
func (g *Groups) PowerOff(in *Instance) {
	in.destroy()
	if g.drop(in, false) {
		g.tell(in, wentDown)
	}
}

// FailLaunch is EventBridge's word that the group can't bring an instance up.
func (g *Groups) FailLaunch(group, why string) {
	g.cloud.InvokeAsync("interrupt", EventBridgeEvent("aws.autoscaling", "EC2 Instance Launch Unsuccessful", map[string]any{
		"StatusCode": "Failed", "AutoScalingGroupName": group, "EC2InstanceId": "", "Description": "Launching a new EC2 instance.  Status Reason: " + why,
		"StatusMessage": why, "Cause": "At " + now() + " an instance was started in response to a difference between desired and actual capacity, increasing the capacity from 0 to 1.",
		"StartTime": now(), "EndTime": now(), "Details": map[string]any{"Availability Zone": Region + "a"}}))
}

// tell is EventBridge's word that the group has ended an instance, and why.
func (g *Groups) tell(in *Instance, why string) {
	g.cloud.InvokeAsync("interrupt", EventBridgeEvent("aws.autoscaling", "EC2 Instance Terminate Successful", map[string]any{
		"StatusCode": "InProgress", "AutoScalingGroupName": in.Group, "EC2InstanceId": in.ID, "Description": "Terminating EC2 instance: " + in.ID, "StatusMessage": "",
		"Cause": "At " + now() + " instance " + in.ID + " was taken out of service in response to " + why, "StartTime": now(), "EndTime": now(),
		"Details": map[string]any{"Availability Zone": Region + "a"}}))
}

// EmitInterruptionWarning is EventBridge's word of an interruption.
func (g *Groups) EmitInterruptionWarning(in *Instance) {
	g.cloud.InvokeAsync("interrupt", EventBridgeEvent("aws.ec2", "EC2 Spot Instance Interruption Warning",
		map[string]any{"instance-id": in.ID, "instance-action": "terminate"}))
}

// EmitRebalance recommends to leave the instance.
func (g *Groups) EmitRebalance(in *Instance) {
	in.service.recommend()
	g.cloud.InvokeAsync("interrupt", EventBridgeEvent("aws.ec2", "EC2 Instance Rebalance Recommendation", map[string]any{"instance-id": in.ID}))
}

// drop takes an instance out of its group, which gets another unless its size
// shrinks with it. It reports whether the instance was there.
func (g *Groups) drop(in *Instance, shrink bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.groups[in.Group]
	before := len(at.instances)
	at.instances = slices.DeleteFunc(at.instances, func(o *Instance) bool { return o == in })
	if shrink && len(at.instances) < before {
		at.desired = max(0, at.desired-1)
	}
	was := len(at.instances) < before
	g.fill(at)
	return was
}

func (g *Groups) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, at := range g.groups {
		for _, in := range at.instances {
			in.destroy()
		}
	}
}

// serve is the API of Auto Scaling.
func (g *Groups) serve(w http.ResponseWriter, q *request) {
	w.Header().Set("Content-Type", "text/xml")
	var err error
	switch q.operation {
	case "DescribeAutoScalingGroups":
		g.describe(w, q)
		return
	case "DescribeAutoScalingInstances":
		g.describeInstances(w, q)
		return
	case "SetDesiredCapacity":
		size, _ := strconv.Atoi(q.form.Get("DesiredCapacity"))
		err = g.SetDesired(q.form.Get("AutoScalingGroupName"), size)
	case "TerminateInstanceInAutoScalingGroup":
		err = g.terminate(q.form.Get("InstanceId"), q.form.Get("ShouldDecrementDesiredCapacity") == "true")
	default:
		err = fmt.Errorf("the action %s is not known", q.operation)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		_ = xml.NewEncoder(w).Encode(struct {
			XMLName xml.Name `xml:"ErrorResponse"`
			Type    string   `xml:"Error>Type"`
			Code    string   `xml:"Error>Code"`
			Message string   `xml:"Error>Message"`
		}{Type: "Sender", Code: "ValidationError", Message: err.Error()})
		return
	}
	_, _ = fmt.Fprintf(w, "<%[1]sResponse><%[1]sResult/><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></%[1]sResponse>", q.operation)
}

// terminate ends an instance: its process hears of it first.
func (g *Groups) terminate(id string, shrink bool) error {
	g.mu.Lock()
	var found *Instance
	for _, at := range g.groups {
		for _, in := range at.instances {
			if in.ID == id {
				found = in
			}
		}
	}
	g.mu.Unlock()
	if found == nil {
		return fmt.Errorf("instance Id not found - No managed instance found for instance ID: %s", id)
	}
	why := "a user request."
	if shrink {
		desired, _, _ := g.Size(found.Group)
		why = fmt.Sprintf("a user request, shrinking the capacity from %d to %d.", desired, max(0, desired-1))
	}
	if g.drop(found, shrink) {
		found.shutDown(g.cloud, why)
	}
	return nil
}

// shutDown ends the machine after a while in which its process may end, and
// tells why.
func (in *Instance) shutDown(c *Cloud, why string) {
	in.signal(syscall.SIGTERM)
	c.running.Go(func() {
		limit := time.NewTimer(shutdownGrace)
		defer limit.Stop()
		select {
		case <-in.ended:
		case <-limit.C:
		case <-c.ctx.Done():
		}
		in.destroy()
		in.groups.tell(in, why)
	})
}

type groupXML struct {
	AutoScalingGroupName string
	MinSize              int
	MaxSize              int
	DesiredCapacity      int
	DefaultCooldown      int
	HealthCheckType      string
	CreatedTime          string
	Instances            []instanceXML `xml:"Instances>member"`
}

type instanceXML struct {
	InstanceID           string `xml:"InstanceId"`
	LifecycleState       string
	HealthStatus         string
	AvailabilityZone     string
	ProtectedFromScaleIn bool
}

func (g *Groups) describe(w http.ResponseWriter, q *request) {
	var names []string
	for key, values := range q.form {
		if strings.HasPrefix(key, "AutoScalingGroupNames.member.") {
			names = append(names, values...)
		}
	}
	var out struct {
		XMLName xml.Name   `xml:"DescribeAutoScalingGroupsResponse"`
		Groups  []groupXML `xml:"DescribeAutoScalingGroupsResult>AutoScalingGroups>member"`
	}
	g.mu.Lock()
	for _, at := range g.groups {
		if len(names) > 0 && !slices.Contains(names, at.name) {
			continue
		}
		x := groupXML{AutoScalingGroupName: at.name, MaxSize: at.most, DesiredCapacity: at.desired, DefaultCooldown: 300, HealthCheckType: "EC2", CreatedTime: now()}
		for _, in := range at.instances {
			x.Instances = append(x.Instances, instanceXML{InstanceID: in.ID, LifecycleState: "InService", HealthStatus: "Healthy", AvailabilityZone: Region + "a"})
		}
		out.Groups = append(out.Groups, x)
	}
	g.mu.Unlock()
	_ = xml.NewEncoder(w).Encode(out)
}

func (g *Groups) describeInstances(w http.ResponseWriter, q *request) {
	type member struct {
		instanceXML
		AutoScalingGroupName string
	}
	var out struct {
		XMLName   xml.Name `xml:"DescribeAutoScalingInstancesResponse"`
		Instances []member `xml:"DescribeAutoScalingInstancesResult>AutoScalingInstances>member"`
	}
	for key, values := range q.form {
		if !strings.HasPrefix(key, "InstanceIds.member.") {
			continue
		}
		for _, id := range values {
			if group := g.of(id); group != "" {
				out.Instances = append(out.Instances, member{instanceXML{InstanceID: id, LifecycleState: "InService", HealthStatus: "HEALTHY", AvailabilityZone: Region + "a"}, group})
			}
		}
	}
	_ = xml.NewEncoder(w).Encode(out)
}

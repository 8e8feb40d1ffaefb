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
	"sync/atomic"
	"syscall"
	"time"

	"rollout/localstack/subprocess"
)

// Groups are the account's Auto Scaling groups. They are safe for concurrent use.
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
	peak          int    // the highest desired size so far
	refused       string // why each launch fails; "" if none does
	suspended     string // why the process Launch is suspended; "" if it is not
	launch        func(*Instance) *exec.Cmd
	instances     []*Instance
}

// Instance is an instance of a group: a process and its metadata service.
type Instance struct {
	ID, Group string
	// Metadata is the address of the instance's metadata service.
	Metadata string

	groups  *Groups
	service *metadata
	cmd     *exec.Cmd
	log     *tail
	gone    chan struct{} // closed when the instance is terminated
	ended   chan struct{} // closed when its process has ended for good
	once    sync.Once
	// finished says that the process has ended by itself, without an error.
	finished atomic.Bool
}

// healthCheckCause is the cause of replacing an instance that is off.
const healthCheckCause = "an EC2 health check indicating it has been terminated or stopped."

// shutdownGrace is the time between SIGTERM and the end of the machine.
const shutdownGrace = 5 * time.Second

func newGroups(c *Cloud) *Groups { return &Groups{cloud: c, groups: map[string]*group{}} }

// Make creates a group of at most the number of instances. Each instance runs the
// command that launch returns. A process that fails is started again, as by the
// machine's init. An instance whose program is missing leaves its group without
// a notice, as its start script does.
func (g *Groups) Make(name string, most int, launch func(*Instance) *exec.Cmd) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[name] = &group{name: name, most: most, launch: launch}
}

// Size returns the group's desired size, its highest desired size so far, and the
// number of its instances.
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
		return fmt.Errorf("the desired size %d is not between 0 and the group's maximum %d", desired, at.most)
	}
	at.desired, at.peak = desired, max(at.peak, desired)
	for len(at.instances) > desired { // the newest go first
		last := at.instances[len(at.instances)-1]
		at.instances = at.instances[:len(at.instances)-1]
		last.shutDown(g.cloud, fmt.Sprintf(
			"a difference between desired and actual capacity, shrinking the capacity from %d to %d.", len(at.instances)+1,
			len(at.instances)))
	}
	g.fill(at)
	return nil
}

// Refuse lets each launch of the group fail for the reason. An empty reason lets machines
// start again, as after a quota was raised, and the group tries again at once.
func (g *Groups) Refuse(name, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.groups[name]
	at.refused = why
	g.fill(at)
}

// SuspendLaunch suspends the process Launch of the group for the reason, until ResumeProcesses.
// What refused its launches is over meanwhile.
func (g *Groups) SuspendLaunch(name, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[name].suspended, g.groups[name].refused = why, ""
}

// Suspended returns why the process Launch of the group is suspended; "" if it is not.
func (g *Groups) Suspended(name string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.groups[name].suspended
}

// Instances returns the instances of a group.
func (g *Groups) Instances(name string) []*Instance {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := g.groups[name]; at != nil {
		return slices.Clone(at.instances)
	}
	return nil
}

// fill starts the missing instances of a group. The caller holds the lock.
func (g *Groups) fill(at *group) {
	if at.suspended != "" {
		return
	}
	if at.refused != "" && len(at.instances) < at.desired && !g.closed {
		g.FailLaunch(at.name, at.refused)
		return
	}
	for len(at.instances) < at.desired && !g.closed {
		g.ids++
		in := &Instance{ID: fmt.Sprintf("i-%017x", g.ids), Group: at.name, groups: g, log: &tail{},
			gone: make(chan struct{}), ended: make(chan struct{})}
		in.service = newMetadata(in.ID)
		in.Metadata = in.service.server.URL
		at.instances = append(at.instances, in)
		g.cloud.running.Go(func() { in.run(at.launch, g.cloud) })
	}
}

// run runs the instance's command until the instance is gone, and starts it again
// whenever it fails.
func (in *Instance) run(launch func(*Instance) *exec.Cmd, c *Cloud) {
	defer close(in.ended)
	for {
		cmd := launch(in)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Stdout, cmd.Stderr = in.log, in.log
		if err := subprocess.Start(cmd); err != nil {
			c.options.Log.Info("the program of an instance does not start", "instance", in.ID, "error", err)
			_ = in.groups.terminate(in.ID, true) // it may be gone already
			return
		}
		in.service.mu.Lock()
		in.cmd = cmd
		in.service.mu.Unlock()
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			if err == nil {
				in.finished.Store(true)
				return // the machine stays
			}
		case <-in.gone:
			_ = syscall.Kill(-cmd.Process.Pid, sigKill)
			<-done
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

// Environment is the environment of a process on the instance. Its session is the
// name of the group, whose role it has.
func (in *Instance) Environment() []string {
	return append(in.groups.cloud.Environment("worker"), "AWS_SESSION_TOKEN="+in.Group,
		"AWS_EC2_METADATA_DISABLED=false", "AWS_EC2_METADATA_SERVICE_ENDPOINT="+in.Metadata)
}

// KillProcess kills the instance's process with SIGKILL. The machine stays, and its
// init starts the process again.
func (in *Instance) KillProcess() { in.signal(sigKill) }

// FreezeProcess stops the instance's process with SIGSTOP until ResumeProcess.
func (in *Instance) FreezeProcess() { in.signal(syscall.SIGSTOP) }

// ResumeProcess continues a stopped process.
func (in *Instance) ResumeProcess() { in.signal(syscall.SIGCONT) }

// SignalTerminate sends SIGTERM to the instance's process, as the machine's init
// does at shutdown.
func (in *Instance) SignalTerminate() { in.signal(syscall.SIGTERM) }

// Ended is closed when the instance's process has ended for good.
func (in *Instance) Ended() <-chan struct{} { return in.ended }

// Finished reports whether the instance's process has ended by itself, without an error.
func (in *Instance) Finished() bool { return in.finished.Load() }

// Output is the end of what the instance's process has written.
func (in *Instance) Output() string { return in.log.String() }

func (in *Instance) signal(s syscall.Signal) {
	in.service.mu.Lock()
	defer in.service.mu.Unlock()
	if in.cmd != nil && in.cmd.Process != nil {
		_ = syscall.Kill(-in.cmd.Process.Pid, s) // it may have ended
	}
}

// destroy ends the instance at once.
func (in *Instance) destroy() {
	in.once.Do(func() {
		close(in.gone)
		in.service.server.Close()
	})
}

// Interrupt announces by the metadata service and by EventBridge that EC2 ends the
// instance after the lead, and ends it then. The group starts another instance
// when it has ended or left.
func (g *Groups) Interrupt(in *Instance, lead time.Duration) {
	in.service.announce(time.Now().Add(lead))
	g.EmitInterruptionWarning(in)
	g.cloud.running.Go(func() {
		if g.cloud.wait(lead) {
			in.destroy()
			if g.drop(in, false) {
				g.emitTermination(in, healthCheckCause)
			}
		}
	})
}

// PowerOff ends the instance, as its own script may. The group starts another one.
func (g *Groups) PowerOff(in *Instance) {
	in.destroy()
	if g.drop(in, false) {
		g.emitTermination(in, healthCheckCause)
	}
}

// FailLaunch emits EventBridge's event that the group failed to launch an instance.
func (g *Groups) FailLaunch(group, why string) {
	g.cloud.InvokeAsync("interrupt", EventBridgeEvent("aws.autoscaling", "EC2 Instance Launch Unsuccessful",
		map[string]any{
			"StatusCode": "Failed", "AutoScalingGroupName": group, "EC2InstanceId": "",
			"Description":   "Launching a new EC2 instance.  Status Reason: " + why,
			"StatusMessage": why, "Cause": "At " + now() +
				" an instance was started in response to a difference between desired and actual capacity, increasing the " +
				"capacity from 0 to 1.",
			"StartTime": now(), "EndTime": now(), "Details": map[string]any{"Availability Zone": Region + "a"}}))
}

// emitTermination emits EventBridge's event that the group has ended an instance.
func (g *Groups) emitTermination(in *Instance, cause string) {
	g.cloud.InvokeAsync("interrupt", EventBridgeEvent("aws.autoscaling", "EC2 Instance Terminate Successful",
		map[string]any{
			"StatusCode": "InProgress", "AutoScalingGroupName": in.Group, "EC2InstanceId": in.ID,
			"Description": "Terminating EC2 instance: " + in.ID, "StatusMessage": "",
			"Cause":     "At " + now() + " instance " + in.ID + " was taken out of service in response to " + cause,
			"StartTime": now(), "EndTime": now(),
			"Details": map[string]any{"Availability Zone": Region + "a"}}))
}

// EmitInterruptionWarning emits EventBridge's event of a spot interruption.
func (g *Groups) EmitInterruptionWarning(in *Instance) {
	g.cloud.InvokeAsync("interrupt", EventBridgeEvent("aws.ec2", "EC2 Spot Instance Interruption Warning",
		map[string]any{"instance-id": in.ID, "instance-action": "terminate"}))
}

// EmitRebalance recommends a rebalance by the metadata service and by EventBridge.
func (g *Groups) EmitRebalance(in *Instance) {
	in.service.recommend()
	g.cloud.InvokeAsync("interrupt", EventBridgeEvent("aws.ec2", "EC2 Instance Rebalance Recommendation",
		map[string]any{"instance-id": in.ID}))
}

// drop removes an instance from its group, which starts another one unless its
// size shrinks. It reports whether the instance was in the group.
func (g *Groups) drop(in *Instance, shrink bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.groups[in.Group]
	before := len(at.instances)
	at.instances = slices.DeleteFunc(at.instances, func(o *Instance) bool { return o == in })
	if shrink && len(at.instances) < before {
		at.desired = max(0, at.desired-1)
	}
	found := len(at.instances) < before
	g.fill(at)
	return found
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

// serve serves the API of Auto Scaling.
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
	case "ResumeProcesses":
		err = g.resume(q.form.Get("AutoScalingGroupName"), q.form.Get("ScalingProcesses.member.1"))
	case "TerminateInstanceInAutoScalingGroup":
		err = g.terminate(q.form.Get("InstanceId"), q.form.Get("ShouldDecrementDesiredCapacity") == "true")
	default:
		err = fmt.Errorf("unknown action %s", q.operation)
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
	_, _ = fmt.Fprintf(w, "<%[1]sResponse><%[1]sResult/>"+
		"<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></%[1]sResponse>", q.operation)
}

// resume resumes the process Launch.
func (g *Groups) resume(name, process string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.groups[name]
	if at == nil || process != "Launch" {
		return fmt.Errorf("no process %q of a group %q", process, name)
	}
	at.suspended = ""
	g.fill(at)
	return nil
}

// terminate ends an instance after SIGTERM to its process.
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
	cause := "a user request."
	if shrink {
		desired, _, _ := g.Size(found.Group)
		cause = fmt.Sprintf("a user request, shrinking the capacity from %d to %d.", desired, max(0, desired-1))
	}
	if g.drop(found, shrink) {
		found.shutDown(g.cloud, cause)
	}
	return nil
}

// shutDown ends the machine when its process has ended, or after shutdownGrace, and
// emits the event with the cause.
func (in *Instance) shutDown(c *Cloud, cause string) {
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
		in.groups.emitTermination(in, cause)
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
	Instances            []instanceXML  `xml:"Instances>member"`
	SuspendedProcesses   []suspendedXML `xml:"SuspendedProcesses>member"`
}

type suspendedXML struct{ ProcessName, SuspensionReason string }

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
		x := groupXML{AutoScalingGroupName: at.name, MaxSize: at.most, DesiredCapacity: at.desired, DefaultCooldown: 300,
			HealthCheckType: "EC2", CreatedTime: now()}
		for _, in := range at.instances {
			x.Instances = append(x.Instances, instanceXML{InstanceID: in.ID, LifecycleState: "InService",
				HealthStatus: "Healthy", AvailabilityZone: Region + "a"})
		}
		if at.suspended != "" {
			x.SuspendedProcesses = []suspendedXML{{"Launch", at.suspended}}
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
			if group := g.groupOf(id); group != "" {
				out.Instances = append(out.Instances, member{instanceXML{InstanceID: id, LifecycleState: "InService",
					HealthStatus: "HEALTHY", AvailabilityZone: Region + "a"}, group})
			}
		}
	}
	_ = xml.NewEncoder(w).Encode(out)
}

package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	problems "rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/text"
)

// launchProcess is the process of a group that starts its machines. Auto Scaling suspends it
// when a group got no machine for about a day, for example because the account's quota is 0:
// see the user guide, "Suspend and resume processes".
const launchProcess = "Launch"

// byUser begins the reason of a process that a user has suspended.
const byUser = "User suspended"

const (
	// longestAbsence bounds the reason in fleet/<pool>, in bytes.
	longestAbsence = 512
	// repeatAfter is how long a reason stands before it is noted again.
	repeatAfter = 10 * time.Minute
)

// ScaleUp raises the desired size of the pool's group, up to the group's own
// maximum; see capacity.Fleet. It reads the size before it writes it, because Auto
// Scaling has no conditional update: concurrent calls may overwrite each other. It notes the
// size before it asks for it, so that Withdraw finds it after a crash in between. It resumes
// the process Launch if Auto Scaling has suspended it.
func (f *Fleet) ScaleUp(ctx context.Context, pool string, machines int) error {
	g, err := f.find(ctx, pool)
	if err != nil {
		return err
	}
	resumed := f.resumeLaunch(ctx, pool, g)
	want := min(int32(min(machines, 1<<20)), awssdk.ToInt32(g.MaxSize))
	desired := awssdk.ToInt32(g.DesiredCapacity)
	if err := f.see(ctx, pool, int(max(want, desired)), present(g)); err != nil || want <= desired {
		return errors.Join(resumed, err)
	}
	return errors.Join(f.setDesired(ctx, pool, want), resumed)
}

// Withdraw lowers the desired size of the pool's group to the number of its machines; see
// capacity.Withdrawer. Otherwise the group would start machines for work that is done, hours
// later, when their capacity or the quota is there. Machines are protected from scale-in, so
// that one that starts during the call stays. It asks Auto Scaling only while the
// group has, or wants, machines.
func (f *Fleet) Withdraw(ctx context.Context, pool string) error {
	if f.options.Docs == nil {
		return nil
	}
	var seen record.Fleet
	if _, _, err := host.Load(ctx, f.options.Docs, record.FleetKey(pool), &seen); err != nil || seen.Desired == 0 {
		return err
	}
	g, err := f.find(ctx, pool)
	if fault.Is(err, fault.NotFound) { // the deployment has no machines any more
		return f.see(ctx, pool, 0, 0)
	}
	if err != nil {
		return err
	}
	n, desired := present(g), int(awssdk.ToInt32(g.DesiredCapacity))
	if desired > n {
		if err := f.setDesired(ctx, pool, int32(n)); err != nil {
			return err
		}
		f.options.Log.InfoContext(ctx, "gave up machines that did not come", observe.KeyPool, pool, "machines", desired-n,
			observe.KeyReason, seen.Absent)
		desired = n
	}
	return f.see(ctx, pool, desired, n)
}

// find returns the pool's group.
func (f *Fleet) find(ctx context.Context, pool string) (*types.AutoScalingGroup, error) {
	name := f.group(pool)
	out, err := f.scaling.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{name},
	})
	if err != nil {
		return nil, translate(ctx, err, "describe the fleet %s", name)
	}
	for i, g := range out.AutoScalingGroups {
		// A status means that the group is being deleted.
		if awssdk.ToString(g.AutoScalingGroupName) == name && awssdk.ToString(g.Status) == "" {
			return &out.AutoScalingGroups[i], nil
		}
	}
	return nil, &fault.Error{Kind: fault.NotFound, Err: fault.New(fault.NotFound, "the fleet %s does not exist", name),
		Remedy: "deploy the stack with gpu=true, or start workers of the pool " + pool + " yourself"}
}

// present returns how many machines of the group exist and are not about to leave.
func present(g *types.AutoScalingGroup) (n int) {
	for _, i := range g.Instances {
		if !strings.HasPrefix(string(i.LifecycleState), "Terminat") {
			n++
		}
	}
	return n
}

func (f *Fleet) setDesired(ctx context.Context, pool string, machines int32) error {
	name := f.group(pool)
	_, err := f.scaling.SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: &name, DesiredCapacity: &machines, HonorCooldown: awssdk.Bool(false),
	})
	return translate(ctx, err, "set the size of the fleet %s to %d machines", name, machines)
}

// resumeLaunch resumes the process Launch if Auto Scaling has suspended it, and tells people
// about it. What a user has suspended stays so.
func (f *Fleet) resumeLaunch(ctx context.Context, pool string, g *types.AutoScalingGroup) error {
	at := slices.IndexFunc(g.SuspendedProcesses, func(p types.SuspendedProcess) bool {
		return awssdk.ToString(p.ProcessName) == launchProcess
	})
	if at < 0 {
		return nil
	}
	name := f.group(pool)
	reason := awssdk.ToString(g.SuspendedProcesses[at].SuspensionReason)
	if strings.HasPrefix(reason, byUser) {
		return f.noteSuspension(ctx, pool, fmt.Sprintf("a user has suspended the process Launch of the group %s (%s): "+
			"`aws autoscaling resume-processes --auto-scaling-group-name %s --scaling-processes Launch` resumes it",
			name, reason, name))
	}
	_, err := f.scaling.ResumeProcesses(ctx, &autoscaling.ResumeProcessesInput{
		AutoScalingGroupName: &name, ScalingProcesses: []string{launchProcess},
	})
	if err != nil {
		err = translate(ctx, err, "resume the process Launch of the fleet %s", name)
		return errors.Join(err, f.noteSuspension(ctx, pool, fmt.Sprintf("Auto Scaling has suspended the process Launch of "+
			"the group %s (%s), and it can't be resumed: %v", name, reason, err)))
	}
	f.options.Log.WarnContext(ctx, "resumed the process Launch, which Auto Scaling had suspended",
		observe.KeyPool, pool, observe.KeyReason, reason)
	return f.noteSuspension(ctx, pool, fmt.Sprintf("Auto Scaling had suspended the process Launch of the group %s, as "+
		"it does after a day without a machine (%s); it is resumed", name, reason))
}

// noteSuspension notes why the pool gets no machines, with the reason that stood before.
func (f *Fleet) noteSuspension(ctx context.Context, pool, why string) error {
	now := f.options.Clock.Now()
	return f.update(ctx, pool, func(d record.Fleet) (record.Fleet, bool) {
		if d.Problem == problems.Suspended && now.Sub(d.AbsentAt) < repeatAfter {
			return d, false
		}
		said := why
		if d.Absent != "" && d.Problem != problems.Suspended {
			said += "; before that: " + d.Absent
		}
		return d.NoteAbsence(now, problems.Suspended, text.Truncate(said, longestAbsence, "…"))
	})
}

// see notes the size of the pool's group, if it has changed.
func (f *Fleet) see(ctx context.Context, pool string, desired, present int) error {
	return f.update(ctx, pool, func(d record.Fleet) (record.Fleet, bool) {
		return d.See(desired, present, f.options.Clock.Now())
	})
}

// update changes the document fleet/<pool>.
func (f *Fleet) update(ctx context.Context, pool string, change func(record.Fleet) (record.Fleet, bool)) error {
	if f.options.Docs == nil {
		return nil
	}
	_, err := host.Update(ctx, f.options.Docs, record.FleetKey(pool),
		func(d record.Fleet, _ bool) (record.Fleet, bool, error) {
			d, changed := change(d)
			return d, changed, nil
		})
	return fault.Wrap(err, "note what is seen of the fleet of pool %s", pool)
}

package aws

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/figures"
)

// maxPages bounds how many pages of an answer are read.
const maxPages = 20

// machineTypes checks that a zone of the region offers a type of each pool. Where a group
// lists several, the others do no harm.
func (a account) machineTypes(ctx context.Context) (string, error) {
	if len(a.pools()) == 0 {
		return "no pool has machines", nil
	}
	wanted := a.at.GroupTypes()
	zones, err := a.offerings(ctx, wanted)
	if err != nil {
		return "", err
	}
	for _, p := range a.pools() {
		list := a.at.MachinesOf(p).InstanceTypes
		if !slices.ContainsFunc(list, func(t string) bool { return len(zones[t]) > 0 }) {
			return "", &fault.Error{Kind: fault.NotFound,
				Err: fault.New(fault.NotFound, "pool %s: no zone of %s offers machines %s", p.Name, a.at.Cloud.Region,
					strings.Join(list, ", ")),
				Remedy: "name others in instance_types, or choose another region"}
		}
	}
	alike := map[string][]string{} // types by their zones
	for _, t := range wanted {
		at := strings.Join(zones[t], ", ")
		alike[at] = append(alike[at], t)
	}
	var found []string
	for _, at := range slices.Sorted(maps.Keys(alike)) {
		if at != "" {
			found = append(found, strings.Join(alike[at], ", ")+" in "+at)
		}
	}
	if none := alike[""]; none != nil {
		found = append(found, strings.Join(none, ", ")+" in no zone of "+a.at.Cloud.Region)
	}
	return strings.Join(found, "; "), nil
}

// offerings returns the letters of the region's zones that offer each type, sorted. Local
// zones, where groups have no subnets, don't count.
func (a account) offerings(ctx context.Context, wanted []string) (map[string][]string, error) {
	in := url.Values{"LocationType": {"availability-zone"}, "Filter.1.Name": {"instance-type"}}
	for i, t := range wanted {
		in.Set("Filter.1.Value."+strconv.Itoa(i+1), t)
	}
	zone := regexp.MustCompile(`^` + regexp.QuoteMeta(a.at.Cloud.Region) + `([a-z])$`)
	zones := map[string][]string{}
	for range maxPages {
		var out struct {
			Items []struct {
				Type     string `xml:"instanceType"`
				Location string `xml:"location"`
			} `xml:"instanceTypeOfferingSet>item"`
			Next string `xml:"nextToken"`
		}
		err := a.api.form(ctx, computeService, "DescribeInstanceTypeOfferings", in, &out)
		if err := seen(err, "ec2:DescribeInstanceTypeOfferings"); err != nil {
			return nil, err
		}
		for _, o := range out.Items {
			if m := zone.FindStringSubmatch(o.Location); m != nil {
				zones[o.Type] = append(zones[o.Type], m[1])
			}
		}
		if out.Next == "" {
			break
		}
		in.Set("NextToken", out.Next)
	}
	for _, list := range zones {
		slices.Sort(list)
	}
	return zones, nil
}

// machineImages checks that the machine image of each pool exists in the region: as an
// image, or as a parameter with the id of one.
func (a account) machineImages(ctx context.Context) (string, error) {
	var images []string
	for _, p := range a.pools() {
		if name := a.at.ImageOf(p); !slices.Contains(images, name) {
			images = append(images, name)
		}
	}
	if len(images) == 0 {
		return "no pool has machines", nil
	}
	var looks cloud.Looks
	for _, name := range images {
		look := a.imageParameter
		if strings.HasPrefix(name, "ami-") {
			look = a.image
		}
		id, err := look(ctx, name)
		if fault.Is(err, fault.NotFound) {
			return "", &fault.Error{Kind: fault.NotFound,
				Err:    fault.New(fault.NotFound, "the region %s has no machine image %s", a.at.Cloud.Region, name),
				Remedy: "name one of this region as ami of [[pool]]: an image, or a parameter of Systems Manager with its id"}
		}
		if err := looks.Add(id, err); err != nil {
			return "", err
		}
	}
	return looks.Result(", ")
}

// imageParameter reads the id of an image from a parameter of Systems Manager.
func (a account) imageParameter(ctx context.Context, name string) (string, error) {
	var out struct {
		Parameter struct{ Value string }
	}
	err := a.api.json(ctx, systemsManager, "GetParameter", map[string]string{"Name": name}, &out)
	if err := seen(err, "ssm:GetParameter"); err != nil {
		return "", err
	}
	if !strings.HasPrefix(out.Parameter.Value, "ami-") {
		return "", &fault.Error{Kind: fault.Invalid,
			Err:    fault.New(fault.Invalid, "the parameter %s has no id of a machine image: %.64q", name, out.Parameter.Value),
			Remedy: "set it to an id such as ami-0123456789abcdef0, or name another as ami of [[pool]]"}
	}
	return out.Parameter.Value, nil
}

// imageReady is the state of an image of which machines can start.
const imageReady = "available"

// image asks for an image by its id.
func (a account) image(ctx context.Context, id string) (string, error) {
	var out struct {
		Items []struct {
			ID    string `xml:"imageId"`
			State string `xml:"imageState"`
		} `xml:"imagesSet>item"`
	}
	err := a.api.form(ctx, computeService, "DescribeImages", url.Values{"ImageId.1": {id}}, &out)
	if err := seen(err, "ec2:DescribeImages"); err != nil {
		return "", err
	}
	if len(out.Items) == 0 {
		return "", fault.New(fault.NotFound, "no image %s", id)
	}
	if state := out.Items[0].State; state != imageReady {
		return "", &fault.Error{Kind: fault.Invalid,
			Err:    fault.New(fault.Invalid, "the machine image %s is not %s: it is %.64q", id, imageReady, state),
			Remedy: "wait until it is, or name another as ami of [[pool]]"}
	}
	return out.Items[0].ID, nil
}

// launches checks that no user has stopped a group of machines from launching any. Auto
// Scaling itself suspends a group whose launches failed for a day, and says so nowhere else:
// ScaleUp resumes it, so that is only told.
func (a account) launches(ctx context.Context) (string, error) {
	pools := map[string]config.Pool{}
	var names []string
	for _, p := range a.pools() {
		name := a.at.Cloud.FleetName(p.Name)
		pools[name] = p
		names = append(names, name)
	}
	if len(names) == 0 {
		return "no pool has machines", nil
	}
	groups, err := a.groups(ctx, names)
	if err != nil {
		return "", err
	}
	if len(groups) == 0 {
		return "", &cloud.Unseen{Reason: "there is no group of machines: none was deployed yet, or with -c gpu=false"}
	}
	found := []string{figures.Of(len(groups), "group")}
	var problems, remedies []string
	for _, name := range names {
		group, ok := groups[name]
		if !ok {
			problems = append(problems, fmt.Sprintf("the pool %s has no group %s", pools[name].Name, name))
			remedies = append(remedies, "deploy the stack again")
			continue
		}
		for _, s := range group.SuspendedProcesses {
			if awssdk.ToString(s.ProcessName) != "Launch" {
				continue
			}
			reason := awssdk.ToString(s.SuspensionReason)
			if !strings.HasPrefix(reason, byUser) {
				found = append(found, fmt.Sprintf("Auto Scaling has suspended %s (%s): it launches again with the next work",
					name, reason))
				continue
			}
			problems = append(problems, fmt.Sprintf("the group %s launches no machine: %s", name, reason))
			remedies = append(remedies, fmt.Sprintf("correct the cause, then run aws autoscaling resume-processes "+
				"--auto-scaling-group-name %s --scaling-processes Launch --region %s", name, a.at.Cloud.Region))
		}
	}
	if problems != nil {
		return "", &fault.Error{Kind: fault.Unavailable,
			Err:    fault.New(fault.Unavailable, "%s", strings.Join(problems, "; ")),
			Remedy: strings.Join(slices.Compact(remedies), "; ")}
	}
	return strings.Join(found, "; "), nil
}

// groupsAtOnce is how many groups Auto Scaling describes at once.
const groupsAtOnce = 100

// groups returns the groups of these names that exist.
func (a account) groups(ctx context.Context, names []string) (map[string]types.AutoScalingGroup, error) {
	client := autoscaling.NewFromConfig(a.sdk)
	found := map[string]types.AutoScalingGroup{}
	for some := range slices.Chunk(names, groupsAtOnce) {
		out, err := client.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
			AutoScalingGroupNames: some, MaxRecords: awssdk.Int32(groupsAtOnce),
		})
		err = translate(ctx, err, "describe the groups of machines")
		if err := seen(err, "autoscaling:DescribeAutoScalingGroups"); err != nil {
			return nil, err
		}
		for _, g := range out.AutoScalingGroups {
			if awssdk.ToString(g.Status) == "" { // a status means that the group is being deleted
				found[awssdk.ToString(g.AutoScalingGroupName)] = g
			}
		}
	}
	return found, nil
}

package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/figures"
)

// vcpuQuota is a quota of EC2 in virtual processors, by its code in Service Quotas.
type vcpuQuota struct{ code, name string }

// unknownQuota is that of types whose quota this program does not know.
var unknownQuota = vcpuQuota{}

// instanceClass is a group of machine types with quotas of their own: one for spot
// machines, one for those at the list price. New accounts have 0 of those with GPUs.
type instanceClass struct {
	types        *regexp.Regexp
	spot, demand vcpuQuota
}

var onDemandP = vcpuQuota{"L-417A185B", "Running On-Demand P instances"}

var instanceClasses = []instanceClass{
	{regexp.MustCompile(`^(g|gr|vt)[0-9]`), vcpuQuota{"L-3819A6DF", "All G and VT Spot Instance Requests"},
		vcpuQuota{"L-DB2E81BA", "Running On-Demand G and VT instances"}},
	{regexp.MustCompile(`^p[2-4]`), vcpuQuota{"L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"}, onDemandP},
	{regexp.MustCompile(`^p5`), vcpuQuota{"L-C4BD4855", "All P5 Spot Instance Requests"}, onDemandP},
	// Which quota spot machines of later series count to is not documented.
	{regexp.MustCompile(`^p[0-9]`), unknownQuota, onDemandP},
	{regexp.MustCompile(`^([acdhmrtz]|i|im|is)[0-9]`),
		vcpuQuota{"L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"},
		vcpuQuota{"L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"}},
}

// quotaOf returns the quota that machines of a type count to.
func quotaOf(instanceType string, spot bool) vcpuQuota {
	for _, c := range instanceClasses {
		switch {
		case !c.types.MatchString(instanceType):
			continue
		case spot:
			return c.spot
		}
		return c.demand
	}
	return unknownQuota
}

var extraLarge = regexp.MustCompile(`^([0-9]*)xlarge$`)

// vcpusOf returns the virtual processors of a type by its size, which means the same in all
// series: 4 of an xlarge, and 4 n of an n-xlarge. It is 0 for other sizes.
func vcpusOf(instanceType string) int {
	_, size, _ := strings.Cut(instanceType, ".")
	if size == "large" || size == "medium" {
		return 2
	}
	m := extraLarge.FindStringSubmatch(size)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(cmp.Or(m[1], "1")) // the pattern has digits alone
	return 4 * n
}

// demand is what a pool asks of a quota: so many machines, at least of the smallest type that
// counts to it.
type demand struct {
	pool     string
	quota    vcpuQuota
	machines int
	smallest string
}

func (d demand) vcpus() int { return d.machines * vcpusOf(d.smallest) }

// demandsOf returns what a pool asks of quotas, by how its machines are bought: for each
// way the alternatives, any of which will do. A way without alternatives has types with
// unknown quotas, which can't be judged.
func (a account) demandsOf(p config.Pool) (ways [][]demand) {
	m, most := a.at.MachinesOf(p), a.at.Cloud.Fleet.MaxMachines
	base := min(m.OnDemandBase, most)
	demanded := base + int(math.Ceil(m.OnDemandShare*float64(most-base)))
	for _, way := range []struct {
		spot     bool
		machines int
	}{{true, most - demanded}, {false, demanded}} {
		if way.machines == 0 {
			continue
		}
		var any []demand
		for _, t := range m.InstanceTypes {
			q := quotaOf(t, way.spot)
			if q == unknownQuota || vcpusOf(t) == 0 {
				any = nil
				break
			}
			i := slices.IndexFunc(any, func(d demand) bool { return d.quota == q })
			switch {
			case i < 0:
				any = append(any, demand{p.Name, q, way.machines, t})
			case vcpusOf(t) < vcpusOf(any[i].smallest):
				any[i].smallest = t
			}
		}
		slices.SortFunc(any, func(x, y demand) int { return cmp.Compare(x.vcpus(), y.vcpus()) })
		ways = append(ways, any)
	}
	return ways
}

// quotas checks that the quotas let the machines of each pool start, while each of the others
// has one. A quota that has room for some of a pool's machines is enough to begin; what to ask
// for is then only said.
func (a account) quotas(ctx context.Context) (string, error) {
	if len(a.pools()) == 0 {
		return "no pool has machines", nil
	}
	var judged [][]demand
	unjudged := false
	asked := map[vcpuQuota]int{} // of all pools together, by their cheapest alternatives
	for _, p := range a.pools() {
		for _, way := range a.demandsOf(p) {
			if len(way) == 0 {
				unjudged = true
				continue
			}
			judged = append(judged, way)
			asked[way[0].quota] += way[0].vcpus()
		}
	}
	rooms := quotaRooms{limits: map[vcpuQuota]int{}, taken: map[vcpuQuota]int{}}
	var looks cloud.Looks
	for _, way := range judged {
		d, err := a.roomiest(ctx, way, rooms)
		found := ""
		if err == nil {
			found, err = a.judge(d, asked, rooms)
		}
		if err := looks.Add(found, err); err != nil {
			return "", err
		}
	}
	if unjudged {
		_ = looks.Add("the quotas of some instance types are not known here", nil) // it adds no error
	}
	return looks.Result("; ")
}

// quotaRooms are limits of quotas, and what the pools that were judged before take of them at
// least: one machine each.
type quotaRooms struct{ limits, taken map[vcpuQuota]int }

// machines returns how many machines of the demand have room.
func (r quotaRooms) machines(d demand) int {
	return max(0, r.limits[d.quota]-r.taken[d.quota]) / vcpusOf(d.smallest)
}

// roomiest returns the alternative with room for most machines. If an alternative can't be
// seen and the others have no room, it is Unseen.
func (a account) roomiest(ctx context.Context, way []demand, rooms quotaRooms) (most demand, err error) {
	var unseen *cloud.Unseen
	for _, d := range way {
		_, err := a.quota(ctx, d.quota, rooms.limits)
		switch {
		case errors.As(err, &unseen):
		case err != nil:
			return demand{}, err
		case most.pool == "" || rooms.machines(d) > rooms.machines(most):
			most = d
		}
	}
	if unseen != nil && (most.pool == "" || rooms.machines(most) == 0) {
		return demand{}, unseen
	}
	return most, nil
}

// judge returns how much of a demand its quota has room for, and takes that of one machine.
func (a account) judge(d demand, asked map[vcpuQuota]int, rooms quotaRooms) (string, error) {
	limit, others, each, room := rooms.limits[d.quota], "", vcpusOf(d.smallest), rooms.machines(d)
	if taken := rooms.taken[d.quota]; taken > 0 {
		others = fmt.Sprintf(", of which other pools take at least %d", taken)
	}
	if room == 0 {
		return "", &fault.Error{Kind: fault.Exhausted,
			Err: fault.New(fault.Exhausted, "pool %s: the quota %q (%s) has %s in %s%s, and its smallest machine, %s, needs %d",
				d.pool, d.quota.name, d.quota.code, figures.Of(limit, "vCPU"), a.at.Cloud.Region, others, d.smallest, each),
			Remedy: a.more(d.quota, asked[d.quota]) + ", and wait hours or days"}
	}
	rooms.taken[d.quota] += each
	found := fmt.Sprintf("%s: %s of %s%s", d.pool, figures.Of(limit, "vCPU"), d.quota.code, others)
	if room < d.machines {
		found += fmt.Sprintf(", room for %d of %d machines (for all: %s)", room, d.machines,
			a.more(d.quota, max(asked[d.quota], d.vcpus())))
	}
	return found, nil
}

// more returns the command that asks for a larger quota.
func (a account) more(q vcpuQuota, vcpus int) string {
	return fmt.Sprintf("run aws service-quotas request-service-quota-increase --service-code ec2 --quota-code %s "+
		"--desired-value %d --region %s", q.code, vcpus, a.at.Cloud.Region)
}

// quota returns the account's limit of a quota, and notes it.
func (a account) quota(ctx context.Context, q vcpuQuota, known map[vcpuQuota]int) (int, error) {
	if limit, ok := known[q]; ok {
		return limit, nil
	}
	in := map[string]string{"ServiceCode": "ec2", "QuotaCode": q.code}
	var out struct {
		Quota struct{ Value float64 }
	}
	err := a.api.json(ctx, quotaService, "GetServiceQuota", in, &out)
	if fault.Is(err, fault.NotFound) {
		return 0, &cloud.Unseen{Reason: fmt.Sprintf("Service Quotas knows no %q (%s) in %s", q.name, q.code,
			a.at.Cloud.Region)}
	}
	if err := seen(err, "servicequotas:GetServiceQuota"); err != nil {
		return 0, err
	}
	known[q] = int(out.Quota.Value)
	return known[q], nil
}

package gcp

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
)

const (
	computeProjects = "https://compute.googleapis.com/compute/v1/projects/"
	// allGPUs is the quota that caps the GPUs of all regions. It is 0 in new projects.
	allGPUs = "GPUS_ALL_REGIONS"
	// cloudRunGPUs is the quota of the GPUs of Cloud Run jobs, by region.
	cloudRunGPUs = "NvidiaL4GpuAllocNoZonalRedundancyPerProjectRegion"
)

// spotQuotas are the regional quotas of spot GPUs by series of machines. The quota of other
// series has no name that is documented.
var spotQuotas = map[string]string{
	"g2":          "PREEMPTIBLE_NVIDIA_L4_GPUS",
	"a2-highgpu":  "PREEMPTIBLE_NVIDIA_A100_GPUS",
	"a2-megagpu":  "PREEMPTIBLE_NVIDIA_A100_GPUS",
	"a2-ultragpu": "PREEMPTIBLE_NVIDIA_A100_80GB_GPUS",
	"a3-highgpu":  "PREEMPTIBLE_NVIDIA_H100_GPUS",
	"a3-megagpu":  "PREEMPTIBLE_NVIDIA_H100_MEGA_GPUS",
	"a3-ultragpu": "PREEMPTIBLE_NVIDIA_H200_GPUS",
}

// quotaOf returns the name of the quota of a machine type's GPUs, or "". Machines that wait
// for capacity use the quota of spot machines.
func quotaOf(machineType, provisioning string) string {
	series, rest, _ := strings.Cut(machineType, "-")
	class, _, _ := strings.Cut(rest, "-")
	name := cmp.Or(spotQuotas[series+"-"+class], spotQuotas[series])
	if provisioning == config.ProvisioningStandard {
		return strings.TrimPrefix(name, "PREEMPTIBLE_")
	}
	return name
}

// groupQuotas returns the names of the quotas of the GPUs that the groups of a pool may
// use. unknown says that there are others.
func (p project) groupQuotas(pool config.Pool) (names []string, unknown bool) {
	for _, machineType := range p.at.InstanceTypesOf(pool.Name) {
		name := quotaOf(machineType, pool.Provisioning)
		unknown = unknown || name == ""
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, unknown
}

// gpuQuota checks that the machines of each pool may have a GPU.
func (p project) gpuQuota(ctx context.Context) (string, error) {
	var found []string
	var unseen *cloud.Unseen
	for _, kind := range []struct {
		pools []string
		check func(context.Context) (string, error)
	}{{p.pools(config.MachinesCloudRun), p.cloudRunQuota}, {p.pools(config.MachinesGroup), p.computeQuota}} {
		if len(kind.pools) == 0 {
			continue
		}
		text, err := kind.check(ctx)
		switch u := (*cloud.Unseen)(nil); {
		case asUnseen(err, &u):
			unseen = u
		case err != nil:
			return "", fault.Wrap(err, "pools %s", strings.Join(kind.pools, ", "))
		default:
			found = append(found, text)
		}
	}
	if unseen != nil {
		return "", unseen
	}
	return strings.Join(found, "; "), nil
}

// quotas are those of Compute Engine by their names.
type quotas map[string]float64

// quotas returns the quotas of Compute Engine: those of all regions, and those of the region.
func (p project) quotas(ctx context.Context) (everywhere, here quotas, err error) {
	at := computeProjects + p.at.Cloud.Project
	if everywhere, err = p.quotasAt(ctx, at, "see the quotas of the project"); err != nil {
		return nil, nil, err
	}
	here, err = p.quotasAt(ctx, at+"/regions/"+p.at.Cloud.Region, "see the quotas of the region")
	return everywhere, here, err
}

func (p project) quotasAt(ctx context.Context, address, what string) (quotas, error) {
	var answer struct {
		Quotas []struct {
			Metric string
			Limit  float64
		}
	}
	if err := p.get(ctx, address, &answer, what); err != nil {
		return nil, err
	}
	found := quotas{}
	for _, q := range answer.Quotas {
		found[q.Metric] = q.Limit
	}
	return found, nil
}

// computeQuota checks the quotas of machines with GPUs: that of all regions, and those
// of the region.
func (p project) computeQuota(ctx context.Context) (string, error) {
	everywhere, here, err := p.quotas(ctx)
	if err != nil {
		return "", err
	}
	all := everywhere[allGPUs]
	found := []string{fmt.Sprintf("%s %v", allGPUs, all)}
	if all < 1 {
		return "", p.noQuota(allGPUs, "")
	}
	for _, pool := range p.at.InferPools() {
		if pool.Machines == config.MachinesCloudRun {
			continue
		}
		names, unknown := p.groupQuotas(pool)
		most := 0.0
		for _, name := range names {
			limit := here[name]
			if text := fmt.Sprintf("%s %v", name, limit); !slices.Contains(found, text) {
				found = append(found, text)
			}
			most = max(most, limit)
		}
		if most < 1 && !unknown {
			return "", fault.Wrap(p.noQuota(strings.Join(names, ", "), " in "+p.at.Cloud.Region), "pool %s", pool.Name)
		}
	}
	return strings.Join(found, ", "), nil
}

// cloudRunQuota checks the quota of the L4 GPUs of Cloud Run jobs in the region.
func (p project) cloudRunQuota(ctx context.Context) (string, error) {
	var info struct {
		Dimensions []struct {
			Dimensions map[string]string
			Details    struct {
				Value int64 `json:"value,string"`
			}
			Locations []string `json:"applicableLocations"`
		} `json:"dimensionsInfos"`
	}
	err := p.get(ctx, "https://cloudquotas.googleapis.com/v1/projects/"+p.at.Cloud.Project+
		"/locations/global/services/run.googleapis.com/quotaInfos/"+cloudRunGPUs, &info,
		"see the quotas of Cloud Run (gcloud services enable cloudquotas.googleapis.com)")
	if fault.Is(err, fault.NotFound) {
		return "", &cloud.Unseen{Reason: "the project has no quota of the name " + cloudRunGPUs}
	}
	if err != nil {
		return "", err
	}
	region := p.at.Cloud.Region
	for _, d := range info.Dimensions {
		if d.Dimensions["region"] != region && !(d.Dimensions["region"] == "" && slices.Contains(d.Locations, region)) {
			continue
		}
		if d.Details.Value == 0 {
			break
		}
		return fmt.Sprintf("%d L4 of Cloud Run in %s", d.Details.Value, region), nil
	}
	return "", p.noQuota(cloudRunGPUs, " in "+region)
}

// noQuota is the failure of a quota that is 0.
func (p project) noQuota(name, where string) error {
	return &fault.Error{Kind: fault.Exhausted,
		Err: fault.New(fault.Exhausted, "the quota %s of the project %s is 0%s", name, p.at.Cloud.Project, where),
		Remedy: "ask for more in IAM & Admin, Quotas; until then Compute Engine and Cloud Run have quotas of their own: " +
			`see machines of [[pool]]`}
}

// machineTypes checks that a zone of the region has machines of a type of each pool. Where a
// pool lists several, the others do no harm.
func (p project) machineTypes(ctx context.Context) (string, error) {
	types := p.at.GroupTypes()
	if len(types) == 0 {
		return "no pool has machines of Compute Engine", nil
	}
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = "(name = " + t + ")"
	}
	var answer struct {
		Items map[string]struct {
			Types []struct{ Name string } `json:"machineTypes"`
		}
	}
	query := url.Values{"filter": {strings.Join(names, " OR ")}, "returnPartialSuccess": {"true"}}
	err := p.get(ctx, computeProjects+p.at.Cloud.Project+"/aggregated/machineTypes?"+query.Encode(), &answer,
		"see which zones have which machines")
	if err != nil {
		return "", err
	}
	zones := map[string][]string{}
	for scope, item := range answer.Items {
		zone := path.Base(scope)
		if !strings.HasPrefix(zone, p.at.Cloud.Region+"-") {
			continue
		}
		for _, t := range item.Types {
			zones[t.Name] = append(zones[t.Name], strings.TrimPrefix(zone, p.at.Cloud.Region+"-"))
		}
	}
	if err := p.someType(zones); err != nil {
		return "", err
	}
	var found, absent []string
	for _, t := range types {
		if len(zones[t]) == 0 {
			absent = append(absent, t)
			continue
		}
		found = append(found, t+" in "+strings.Join(slices.Sorted(slices.Values(zones[t])), ", "))
	}
	if absent != nil {
		found = append(found, strings.Join(absent, ", ")+" in no zone of "+p.at.Cloud.Region)
	}
	return strings.Join(found, "; "), nil
}

// someType checks that each pool with groups has a type that a zone has. The zones are by type.
func (p project) someType(zones map[string][]string) error {
	for _, pool := range p.at.Pools {
		list := p.at.InstanceTypesOf(pool.Name)
		if pool.Machines == config.MachinesCloudRun ||
			slices.ContainsFunc(list, func(t string) bool { return len(zones[t]) > 0 }) {
			continue
		}
		return &fault.Error{Kind: fault.NotFound,
			Err: fault.New(fault.NotFound, "pool %s: no zone of %s has machines %s", pool.Name, p.at.Cloud.Region,
				strings.Join(list, ", ")),
			Remedy: "name others in instance_types, or choose another region"}
	}
	return nil
}

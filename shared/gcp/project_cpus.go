package gcp

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
)

const (
	// allCPUs is the quota that caps the CPUs of all regions.
	allCPUs = "CPUS_ALL_REGIONS"
	// spotCPUs is the quota of spot machines' CPUs in a region, of every series. While it is
	// 0, which it is in new projects, spot machines use the quota of their series.
	spotCPUs = "PREEMPTIBLE_CPUS"
)

// cpuQuotas are the regional quotas of CPUs by series of machines. Those of newer series are
// not among the quotas that Compute Engine lists.
var cpuQuotas = map[string]string{
	"n1": "CPUS", "e2": "CPUS", "n2": "N2_CPUS", "n2d": "N2D_CPUS", "c2": "C2_CPUS", "c2d": "C2D_CPUS", "c3": "C3_CPUS",
	"t2d": "T2D_CPUS",
}

// cpuQuota checks that each training pool may have a machine of one of its types.
func (p project) cpuQuota(ctx context.Context) (string, error) {
	var pools []config.Pool
	for _, pool := range p.at.Pools {
		if pool.Trains() {
			pools = append(pools, pool)
		}
	}
	if len(pools) == 0 {
		return "no pool trains", nil
	}
	everywhere, here, err := p.quotas(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, pool := range pools {
		var lacks []string
		fits := false
		for _, machineType := range p.at.InstanceTypesOf(pool.Name) {
			n := cpusOf(machineType)
			name, limit, known := cpuLimit(machineType, pool.Provisioning, everywhere, here)
			switch text := fmt.Sprintf("%s %v", name, limit); {
			case !known:
				fits = true // what can't be seen is not refused
			case limit < n:
				lacks = append(lacks, fmt.Sprintf("%s takes %v of %s, which is %v", machineType, n, name, limit))
			default:
				if fits = true; !slices.Contains(found, text) {
					found = append(found, text)
				}
			}
		}
		if !fits {
			return "", &fault.Error{Kind: fault.Exhausted,
				Err: fault.New(fault.Exhausted, "pool %s: no machine fits into the quotas of the project %s in %s: %s", pool.Name,
					p.at.Cloud.Project, p.at.Cloud.Region, strings.Join(lacks, "; ")),
				Remedy: "ask for more in IAM & Admin, Quotas, or name other types in instance_types"}
		}
	}
	if found == nil {
		return "Compute Engine does not list the quotas of the pools' types", nil
	}
	return strings.Join(found, ", "), nil
}

// cpuLimit returns the lowest of the listed quotas that a machine type's CPUs count against.
// known is false if none is listed.
func cpuLimit(machineType, provisioning string, everywhere, here quotas) (name string, limit float64, known bool) {
	series, _, _ := strings.Cut(machineType, "-")
	name = cpuQuotas[series]
	if provisioning != config.ProvisioningStandard && here[spotCPUs] > 0 {
		name = spotCPUs
	}
	limit, known = here[name]
	if all, listed := everywhere[allCPUs]; listed && (!known || all < limit) {
		return allCPUs, all, true
	}
	return name, limit, known
}

// cpusOf returns the CPUs of a machine type: 8 for "n2-standard-8", "c3-standard-8-lssd" and
// "n2-custom-8-16384". A part of one, as of "e2-small", takes the whole.
func cpusOf(machineType string) float64 {
	for _, part := range strings.Split(machineType, "-")[1:] {
		if n, err := strconv.Atoi(part); err == nil {
			return float64(n)
		}
	}
	return 1
}

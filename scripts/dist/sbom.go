package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"rollout/scripts/licenses"
)

// sbom collects the modules of an archive's programs, for a list in the format
// CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).
type sbom struct {
	release  *Release
	platform string
	programs []component
	modules  map[string]component // by bom-ref
	links    []dependency         // of the programs
}

// These types are the part of the format that the list uses.
type (
	bom struct {
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		SerialNumber string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string          `json:"type"`
		Ref        string          `json:"bom-ref"`
		Name       string          `json:"name"`
		Version    string          `json:"version"`
		Hashes     []hash          `json:"hashes,omitempty"`
		Licenses   []licenseChoice `json:"licenses,omitempty"`
		PURL       string          `json:"purl,omitempty"`
		Components []component     `json:"components,omitempty"`
		Properties []property      `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	licenseChoice struct {
		Expression string `json:"expression"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

// ownLicense is the licence of the repository.
const ownLicense = "Apache-2.0"

// add takes a built program and the modules that the toolchain recorded in it.
func (s *sbom) add(name string, program []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("read the build information of %s: %w", name, err)
	}
	if s.modules == nil {
		s.modules = map[string]component{}
	}
	link := dependency{Ref: name}
	goVersion := strings.Fields(info.GoVersion)[0] // experiments follow it
	standard := debug.Module{Path: licenses.GoModule, Version: goVersion}
	for _, m := range append([]*debug.Module{&standard}, info.Deps...) {
		if m.Replace != nil {
			m = m.Replace
		}
		c, err := s.module(m)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.modules[c.Ref] = c
		link.DependsOn = append(link.DependsOn, c.Ref)
	}
	slices.Sort(link.DependsOn)
	s.links = append(s.links, link)
	s.programs = append(s.programs, component{
		Type: "application", Ref: name, Name: name, Version: s.release.Version,
		Hashes:   []hash{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(program))}},
		Licenses: []licenseChoice{{ownLicense}},
	})
	return nil
}

// module describes a linked module, with the licence that the release knows.
func (s *sbom) module(m *debug.Module) (component, error) {
	i := slices.IndexFunc(s.release.Modules, func(l licenses.Module) bool { return l.Path == m.Path })
	if i < 0 {
		return component{}, fmt.Errorf("the licence of %s is not known: run make licenses", m.Path)
	}
	name, version := m.Path, m.Version
	if name == licenses.GoModule {
		name, version = "stdlib", strings.TrimPrefix(version, "go") // what vulnerability databases call it
	}
	purl := "pkg:golang/" + name + "@" + url.QueryEscape(version)
	return component{
		Type: "library", Ref: purl, Name: name, Version: version, PURL: purl,
		Licenses: []licenseChoice{{s.release.Modules[i].License}},
	}, nil
}

// encode returns the list as JSON.
func (s *sbom) encode() ([]byte, error) {
	r := s.release
	archive := dependency{Ref: "archive"}
	for _, p := range s.programs {
		archive.DependsOn = append(archive.DependsOn, p.Ref)
	}
	list := bom{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{
			Timestamp: r.Date.UTC().Format(time.RFC3339),
			Component: component{
				Type: "application", Ref: archive.Ref, Name: "rollout", Version: r.Version,
				Licenses:   []licenseChoice{{ownLicense}},
				Components: s.programs,
				Properties: []property{{"commit", r.Commit}, {"platform", s.platform}},
			},
		},
		Dependencies: append([]dependency{archive}, s.links...),
	}
	for _, m := range s.modules {
		list.Components = append(list.Components, m)
		list.Dependencies = append(list.Dependencies, dependency{Ref: m.Ref, DependsOn: []string{}})
	}
	slices.SortFunc(list.Components, func(a, b component) int { return strings.Compare(a.Ref, b.Ref) })
	slices.SortFunc(list.Dependencies, func(a, b dependency) int { return strings.Compare(a.Ref, b.Ref) })
	list.SerialNumber = serialNumber(list)
	b, err := json.MarshalIndent(list, "", "  ")
	return append(b, '\n'), err
}

// serialNumber returns a UUID (version 8) made from the list's content, because
// a random one would make every build different.
func serialNumber(list bom) string {
	sum := sha256.Sum256(fmt.Append(nil, list))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

package main

import (
	"debug/buildinfo"
	"encoding/json"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// builderID names who builds, and buildType how: mkimage, as docs/images.md tells.
const (
	builderID = source + "/tools/image"
	buildType = source + "/docs/images.md#who-built-it-and-from-what"
)

// A statement is one of in-toto (v1), about provenance as SLSA 1.0 has it. It names no time
// and no machine, so that whoever builds the same makes the same.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []artifact `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type artifact struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type provenance struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []artifact        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
		Byproducts []artifact `json:"byproducts"`
	} `json:"runDetails"`
}

// provenance tells from what v, whose manifest is digest, was built, and with which
// arguments. What the programs were linked from is in the SBOM, which is named by its digest.
func (b *builder) provenance(v variant, digest v1.Hash, sbom artifact) ([]byte, error) {
	first, err := buildinfo.ReadFile(filepath.Join(v.built, v.flavor.programs[0]))
	if err != nil {
		return nil, err
	}
	s := statement{
		Type:          "https://in-toto.io/Statement/v1",
		Subject:       []artifact{{Name: b.repo + ":" + b.tag(v), Digest: sha256of(digest)}},
		PredicateType: "https://slsa.dev/provenance/v1",
	}
	definition := &s.Predicate.BuildDefinition
	definition.BuildType = buildType
	definition.ExternalParameters = map[string]string{
		"date": b.date, "ldflags": b.ldflags, "platform": v.platform.String(), "version": b.version,
	}
	if b.base.named { // else it is a path of this machine, and the digest says more
		definition.ExternalParameters["base"] = b.base.name
	}
	definition.ResolvedDependencies = []artifact{
		{URI: "git+" + source, Digest: map[string]string{"gitCommit": b.commit}},
		{URI: "pkg:golang/stdlib@" + first.GoVersion[len("go"):]},
	}
	if b.packaged(v) {
		recorded := b.lock.packages[v.platform.debian]
		_, purl := recorded.spdx()
		definition.ResolvedDependencies = append(definition.ResolvedDependencies, artifact{URI: purl, Digest: map[string]string{"sha256": recorded.sha256}})
	}
	if b.base.name != scratch {
		image, err := b.base.platform(v.platform.Platform)
		if err != nil {
			return nil, err
		}
		below, err := image.Digest()
		if err != nil {
			return nil, err
		}
		definition.ResolvedDependencies = append(definition.ResolvedDependencies, artifact{Name: "base", Digest: sha256of(below)})
	}
	s.Predicate.RunDetails.Builder.ID = builderID
	s.Predicate.RunDetails.Byproducts = []artifact{sbom}
	return json.MarshalIndent(s, "", " ")
}

func sha256of(h v1.Hash) map[string]string { return map[string]string{"sha256": h.Hex} }

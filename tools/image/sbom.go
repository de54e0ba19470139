package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// An sbom is a document of SPDX 2.3, as far as we have something to say.
type sbom struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creationInfo   `json:"creationInfo"`
	Packages          []spdxPackage  `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	SPDXID           string        `json:"SPDXID"`
	Name             string        `json:"name"`
	VersionInfo      string        `json:"versionInfo"`
	DownloadLocation string        `json:"downloadLocation"`
	FilesAnalyzed    bool          `json:"filesAnalyzed"`
	LicenseConcluded string        `json:"licenseConcluded"`
	LicenseDeclared  string        `json:"licenseDeclared"`
	CopyrightText    string        `json:"copyrightText"`
	Checksums        []checksum    `json:"checksums,omitempty"`
	ExternalRefs     []externalRef `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm     string `json:"algorithm"`
	ChecksumValue string `json:"checksumValue"`
}

type externalRef struct {
	ReferenceCategory string `json:"referenceCategory"`
	ReferenceType     string `json:"referenceType"`
	ReferenceLocator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const document = "SPDXRef-DOCUMENT"

// notInID are the characters that an SPDX identifier may not have.
var notInID = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

// sbom lists what v, whose manifest is digest, consists of: the programs, the Go
// modules that each was linked from by its own build information, and the recorded
// package. What a base of the user's own holds is for its own SBOM to say; it is named
// by its digest.
func (b *builder) sbom(v variant, digest v1.Hash) ([]byte, error) {
	s := sbom{
		SPDXVersion:       "SPDX-2.3",
		DataLicense:       "CC0-1.0",
		SPDXID:            document,
		Name:              v.name(),
		DocumentNamespace: source + "/sbom/" + digest.String(),
		CreationInfo:      creationInfo{Created: b.created.UTC().Format(time.RFC3339), Creators: []string{"Tool: mkimage"}},
	}
	image := s.add(spdxPackage{Name: v.name(), VersionInfo: b.version, LicenseDeclared: "Apache-2.0", Checksums: sha256sum(digest.Hex)}, "")
	s.relate(document, "DESCRIBES", image)
	if b.packaged(v) {
		s.relate(image, "CONTAINS", s.add(b.lock.packages[v.platform.debian].spdx()))
	}
	if b.base.name != scratch {
		below, err := b.baseOf(v)
		if err != nil {
			return nil, err
		}
		s.relate(image, "DESCENDANT_OF", s.add(below, ""))
	}
	for _, name := range v.flavor.programs {
		if err := s.addProgram(image, filepath.Join(v.built, name), b.version); err != nil {
			return nil, err
		}
	}
	return json.MarshalIndent(s, "", " ")
}

// packaged tells whether the recorded package is in v.
func (b *builder) packaged(v variant) bool {
	return b.base.name == scratch && v.flavor.name == "thick" || v.debug
}

// addProgram adds a Go program of the image, and what it was linked from.
func (s *sbom) addProgram(image, file, version string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	program := s.add(spdxPackage{Name: filepath.Base(file), VersionInfo: version, LicenseDeclared: "Apache-2.0", Checksums: sha256sum(fmt.Sprintf("%x", sum))}, "")
	s.relate(image, "CONTAINS", program)
	modules := append([]*debug.Module{{Path: "stdlib", Version: info.GoVersion[len("go"):]}}, info.Deps...)
	for _, m := range modules {
		if m.Replace != nil && m.Replace.Version != "(devel)" { // that is a folder's
			m = m.Replace
		}
		s.relate(program, "DEPENDS_ON", s.add(spdxPackage{Name: m.Path, VersionInfo: m.Version}, "pkg:golang/"+m.Path+"@"+m.Version))
	}
	return nil
}

// add adds a package, once, and returns its id. purl may be empty.
func (s *sbom) add(p spdxPackage, purl string) string {
	p.SPDXID = "SPDXRef-" + notInID.ReplaceAllString(p.Name+"-"+p.VersionInfo, "-")
	for _, have := range s.Packages {
		if have.SPDXID == p.SPDXID {
			return p.SPDXID
		}
	}
	p.DownloadLocation, p.LicenseConcluded, p.CopyrightText = "NOASSERTION", "NOASSERTION", "NOASSERTION"
	if p.LicenseDeclared == "" {
		p.LicenseDeclared = "NOASSERTION"
	}
	if purl != "" {
		p.ExternalRefs = []externalRef{{"PACKAGE-MANAGER", "purl", purl}}
	}
	s.Packages = append(s.Packages, p)
	return p.SPDXID
}

func (s *sbom) relate(element, kind, related string) {
	s.Relationships = append(s.Relationships, relationship{element, kind, related})
}

// spdx is the package in an SBOM, and its package URL.
func (d deb) spdx() (spdxPackage, string) {
	purl := fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", d.name, url.QueryEscape(d.version), d.arch)
	return spdxPackage{Name: d.name, VersionInfo: d.version, LicenseDeclared: "GPL-2.0-only", Checksums: sha256sum(d.sha256)}, purl
}

// baseOf is the user's base image below v.
func (b *builder) baseOf(v variant) (spdxPackage, error) {
	image, err := b.base.platform(v.platform.Platform)
	if err != nil {
		return spdxPackage{}, err
	}
	digest, err := image.Digest()
	if err != nil {
		return spdxPackage{}, err
	}
	return spdxPackage{Name: "base", VersionInfo: digest.String(), Checksums: sha256sum(digest.Hex)}, nil
}

func sha256sum(hex string) []checksum { return []checksum{{"SHA256", hex}} }

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// spec is all that the first process of a machine has to know. The driver writes it
// into the machine's folder before each start.
type spec struct {
	Hostname string
	Cgroups  []cgroup // to be joined; they become the roots of the machine's hierarchies
	Disks    []disk   // in order
	Path     string   // where programs are looked for
	Programs []program
	Forward  string // address to which the inherited listener forwards; "" is no listener
}

// disk is a part of a machine's file system that outlives the machine.
type disk struct {
	Path   string // on the machine
	Folder string // here: what is bound there, or holds the changes to Lower
	Lower  string `json:",omitempty"` // folder here that an overlay is put over
}

// program is run by the first process, and started again when it ends.
type program struct {
	Name  string // also that of its log
	After string `json:",omitempty"` // network:address that must accept connections first
	Args  []string
}

// specFile is below the machine's folder.
const specFile = "machine.json"

func (s spec) write(folder string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", s.Hostname, err)
	}
	return os.WriteFile(filepath.Join(folder, specFile), text, 0o600)
}

func readSpec(folder string) (spec, error) {
	var s spec
	text, err := os.ReadFile(filepath.Join(folder, specFile))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", filepath.Join(folder, specFile), err)
	}
	return s, nil
}

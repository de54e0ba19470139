package cnirun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/multus-thick/multus/internal/attach"
	"github.com/multus-thick/multus/internal/plan"
)

// cached is a file of libcni's result cache, kind cniCacheV1.
type cached struct {
	Kind           string                     `json:"kind"`
	ContainerID    string                     `json:"containerId"`
	Config         []byte                     `json:"config"`
	IfName         string                     `json:"ifName"`
	NetworkName    string                     `json:"networkName"`
	NetNS          string                     `json:"netns,omitempty"`
	Args           []plan.Arg                 `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage            `json:"result"`
}

// remember writes the attachment into libcni's result cache, for a Multus v4 that
// the node goes back to. Whole or not at all; it is not synced to the disk, because
// the sandboxes that it is about do not outlive a crash of the node either.
func (r *Runner) remember(a attach.Attachment, result json.RawMessage) error {
	if r.CacheDir == "" {
		return nil
	}
	raw, err := json.Marshal(cached{
		Kind: "cniCacheV1", ContainerID: a.Sandbox.ContainerID, Config: a.Config.Bytes(), IfName: a.Interface,
		NetworkName: a.Config.Name(), NetNS: a.Sandbox.NetNS, Args: a.Args, CapabilityArgs: a.CapabilityArgs, Result: result,
	})
	if err == nil {
		err = r.replace(r.cacheFile(a), raw)
	}
	if err != nil {
		return fmt.Errorf("writing the result cache of network %s: %w", a.Network, err)
	}
	return nil
}

// forget removes the attachment from the cache. Absent is success.
func (r *Runner) forget(a attach.Attachment) error {
	if r.CacheDir == "" || validate(a) != nil { // what is not valid was never added
		return nil
	}
	if err := os.Remove(r.cacheFile(a)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing network %s from the result cache: %w", a.Network, err)
	}
	return nil
}

func (r *Runner) cacheFile(a attach.Attachment) string {
	return filepath.Join(r.CacheDir, "results", cacheName(a))
}

func cacheName(a attach.Attachment) string {
	return a.Config.Name() + "-" + a.Sandbox.ContainerID + "-" + a.Interface
}

// replace writes a file of mode 0600 in cniDir and renames it: there the ledger finds
// temporary files that a killed plugin left; the cache itself nobody looks through.
func (r *Runner) replace(path string, content []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(r.CacheDir, ".tmp-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// validate holds the names to the CNI specification (sections 1 and 2), as libcni
// does. They become part of a file name.
func validate(a attach.Attachment) error {
	switch {
	case !identifier(a.Config.Name()):
		return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("network name %s is not valid", quoted(a.Config.Name())), "want letters, digits, '_', '.' and '-', a letter or digit first")
	case !identifier(a.Sandbox.ContainerID):
		return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("container id %s is not valid", quoted(a.Sandbox.ContainerID)), "want letters, digits, '_', '.' and '-', a letter or digit first")
	case !interfaceName(a.Interface):
		return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("interface name %s is not valid", quoted(a.Interface)), "want 1 to 15 characters without '/', ':' and spaces, and not . or ..")
	case len(cacheName(a)) > unix.NAME_MAX:
		return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("network name %s is too long", quoted(a.Config.Name())), fmt.Sprintf("with container id and interface name it makes a file name of more than %d bytes", unix.NAME_MAX))
	}
	return nil
}

func identifier(s string) bool {
	alnum := func(r rune) bool { return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) }
	odd := func(r rune) bool { return !alnum(r) && !strings.ContainsRune("_.-", r) }
	return s != "" && alnum(rune(s[0])) && !strings.ContainsFunc(s, odd)
}

func interfaceName(s string) bool {
	odd := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }
	return s != "" && len(s) <= 15 && s != "." && s != ".." && !strings.ContainsFunc(s, odd)
}
